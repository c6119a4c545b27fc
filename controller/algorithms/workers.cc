#include "controller/algorithms/workers.h"

#include <unistd.h>

#include <algorithm>
#include <set>
#include <thread>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/process_info.h"
#include "common/base/status.h"
#include "common/config/device.h"
#include "controller/algorithms/environments.h"
#include "controller/algorithms/folder_probe.h"
#include "controller/algorithms/trainer_placement.h"
#include "controller/algorithms/wait_for_nodes.h"

namespace manta::controller {
namespace {

v1::DType DTypeOf(const std::string& precision) {
  if (precision == "bfloat16") return v1::DTYPE_BF16;
  if (precision == "float16") return v1::DTYPE_F16;
  return v1::DTYPE_F32;
}

int Cores() {
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

// Trainer and generator work in turns on the same cores, so each side may use them all.
int ThreadsFor(int64_t asked, int64_t processes) {
  return asked > 0 ? static_cast<int>(asked)
                   : std::max<int>(1, Cores() / static_cast<int>(std::max<int64_t>(1, processes)));
}

std::set<std::string> NodesOf(const Group& group) {
  std::set<std::string> nodes;
  for (const GroupMember& member : group.members()) nodes.insert(member.node);
  return nodes;
}

// On the controller's own machine.
bool AllHere(const Group& group) {
  const std::string here = HostId();
  return std::all_of(group.members().begin(), group.members().end(),
                     [&](const GroupMember& member) { return member.host_id == here; });
}

// How errors call its ranks: "train-1", or "train-1 on node-b".
std::vector<std::string> NamesOf(const Group& group) {
  const bool several = NodesOf(group).size() > 1;
  std::vector<std::string> names;
  for (const GroupMember& member : group.members()) {
    names.push_back(absl::StrCat(group.role(), "-", member.rank, several ? " on " : "", several ? member.node : ""));
  }
  return names;
}

GroupSpec Spec(const RunContext& context, const config::RunConfig& config, std::string role, int64_t ranks, const char* executable) {
  GroupSpec spec;
  spec.role = std::move(role);
  spec.num_ranks = static_cast<int>(ranks);
  spec.executable = (context.bin_dir / executable).string();
  spec.progress_timeout = absl::Seconds(config.cluster.progress_timeout_s);
  return spec;
}

constexpr absl::Duration kTellOfWaiting = absl::Seconds(2);

// While room is waited for, says in the run's events which.
Task<absl::Status> TellOfWaiting(RunContext context, absl::Duration patience, CancelToken end) {
  std::string told;
  while (true) {
    MANTA_CO_RETURN_IF_ERROR(co_await Sleep(*context.loop, kTellOfWaiting, end));
    const std::string now = context.cluster->WaitsFor();
    if (!now.empty() && now != told) {
      context.events->Text(absl::StrCat("waiting for room, ", absl::FormatDuration(patience), " at most: ", now));
    }
    told = now;
  }
}

// Starts the groups side by side, those that are there but for it. The first that fails ends the wait: the others may
// load for minutes yet, and the cluster's end stops them.
Task<absl::StatusOr<std::vector<std::shared_ptr<Group>>>> StartAll(RunContext context, std::vector<GroupSpec> specs) {
  struct Starting {
    explicit Starting(EventLoop& loop) : done(loop) {}
    OneShot<absl::Status> done;
    std::vector<std::shared_ptr<Group>> groups;
    size_t left = 0;
    CancelSource over;
  };
  auto starting = std::make_shared<Starting>(*context.loop);
  starting->groups.resize(specs.size());
  starting->left = specs.size();
  if (!specs.empty() && specs[0].waits_for_nodes) {
    Spawn(*context.loop, TellOfWaiting(context, specs[0].placement_deadline, starting->over.token()), [](const absl::Status&) {});
  }
  for (size_t i = 0; i < specs.size(); ++i) {
    if ((starting->groups[i] = context.cluster->Find(specs[i].role)) != nullptr) {
      if (--starting->left == 0) starting->done.Set(absl::OkStatus());
      continue;
    }
    Spawn(*context.loop, context.cluster->StartGroup(std::move(specs[i])),
          [starting, i](absl::StatusOr<std::shared_ptr<Group>> group) {
            --starting->left;
            if (group.ok()) starting->groups[i] = *std::move(group);
            if (!group.ok() || starting->left == 0) starting->done.Set(group.status());
          });
  }
  absl::Status status = co_await starting->done.Wait();
  starting->over.Cancel(absl::CancelledError("started"));
  if (!status.ok()) co_return status;
  co_return starting->groups;
}

// Which device, and how many trainer ranks where: a matter of the nodes that there are.
absl::Status ChooseShape(const RunContext& context, const config::Tree& tree, const config::RunConfig& config,
                         bool adopting, WorkerShape* shape) {
  MANTA_ASSIGN_OR_RETURN(shape->cuda, config::ChooseCuda(tree, config, context.cluster->num_gpus()));
  if (config.algorithm == config::Algorithm::kEval) return absl::OkStatus();
  if (adopting) {  // a group that is there is asked for as it is, whatever nodes have come or gone since
    shape->trainer = PlacementOf(config, context.cluster->RanksOf("train"));
    return absl::OkStatus();
  }
  MANTA_ASSIGN_OR_RETURN(shape->trainer, PlaceTrainer(tree, config, shape->cuda, context.cluster->nodes()));
  if (!shape->trainer.warning.empty()) context.events->Warning(shape->trainer.warning);
  return absl::OkStatus();
}

v1::ConfigureGeneratorRequest GeneratorRequest(const config::RunConfig& config, bool cuda);

}  // namespace

Task<absl::StatusOr<std::unique_ptr<Workers>>> Workers::Start(RunContext context, const config::Tree& tree,
                                                              const config::RunConfig& config, std::string resume_from,
                                                              std::optional<WorkerShape>* shape) {
  std::unique_ptr<Workers> workers(new Workers());
  absl::Status started = co_await workers->StartGroups(context, tree, config, /*adopting=*/false, shape);
  if (!started.ok()) co_return started;
  absl::Status configured = co_await workers->Configure(context, config, std::move(resume_from));
  if (!configured.ok()) co_return configured;
  co_return std::move(workers);
}

std::vector<std::string> Workers::Roles(const config::RunConfig& config) {
  std::vector<std::string> roles;
  if (config.algorithm != config::Algorithm::kEval) roles.push_back("train");
  if (config.algorithm != config::Algorithm::kSft) {
    roles.push_back("gen");
    roles.push_back("reward");
  }
  return roles;
}

Task<absl::StatusOr<std::unique_ptr<Workers>>> Workers::Adopt(RunContext context, const config::Tree& tree,
                                                              const config::RunConfig& config,
                                                              std::optional<WorkerShape>* shape) {
  std::unique_ptr<Workers> workers(new Workers());
  const std::vector<std::string> there = context.cluster->Roles();
  if (there.empty()) co_return absl::FailedPreconditionError("no worker had been started yet");
  const std::vector<std::string> needed = Roles(config);
  for (const std::string& role : needed) {
    if (std::find(there.begin(), there.end(), role) == there.end()) {
      co_return absl::FailedPreconditionError(absl::StrCat("group ", role, " is not there"));
    }
  }
  absl::Status started = co_await workers->StartGroups(context, tree, config, /*adopting=*/true, shape);
  if (!started.ok()) co_return started;
  absl::Status taken = co_await workers->TakeOver(context, config, /*rejoins=*/false);
  if (!taken.ok()) co_return taken;
  co_return std::move(workers);
}

Task<absl::StatusOr<std::unique_ptr<Workers>>> Workers::Rejoin(RunContext context, const config::Tree& tree,
                                                               const config::RunConfig& config,
                                                               std::optional<WorkerShape>* shape) {
  std::unique_ptr<Workers> workers(new Workers());
  absl::Status started = co_await workers->StartGroups(context, tree, config, /*adopting=*/false, shape);
  if (!started.ok()) co_return started;
  absl::Status taken = co_await workers->TakeOver(context, config, /*rejoins=*/true);
  if (!taken.ok()) co_return taken;
  co_return std::move(workers);
}

std::vector<std::string> Workers::DeadRoles() const {
  std::vector<std::string> dead;
  for (const auto& group : groups_) {
    if (!group->health().ok()) dead.push_back(group->role());
  }
  return dead;
}

Task<absl::Status> Workers::TakeOver(RunContext context, const config::RunConfig& config, bool rejoins) {
  for (const auto& group : groups_) {
    const bool as_it_was = group->adopted() || found_.count(group->role()) > 0;
    const bool replaced = rejoins && group != train_;
    if (!as_it_was && !replaced) {
      co_return absl::FailedPreconditionError(absl::StrCat("group ", group->role(), " was gone"));
    }
  }
  if (trainers_) {
    context.events->Phase("waiting for the trainer to come to rest");
    const Patience patience;
    MANTA_CO_ASSIGN_OR_RETURN(trained_,
                              co_await AwaitTrainedStep(context.loop, trainers_.get(), any_.token(), patience));
  }
  if (generators_ == nullptr) co_return absl::OkStatus();
  if (rejoins && found_.count(generate_->role()) == 0) {
    context.events->Phase("loading the model into the new generators");
    v1::ConfigureGeneratorRequest request = GeneratorRequest(config, cuda_);
    co_return co_await generators_->Configure(std::move(request));
  }
  const auto stats = co_await generators_->Stats();
  co_return stats.status();
}

Task<absl::Status> Workers::StartGroups(RunContext context, const config::Tree& tree, const config::RunConfig& config,
                                        bool adopting, std::optional<WorkerShape>* shape) {
  // What is to be taken over lies on nodes that come back soon or not at all.
  const absl::Duration patience = adopting ? absl::Seconds(30) : absl::Seconds(config.cluster.wait_for_nodes_s);
  MANTA_CO_RETURN_IF_ERROR(co_await WaitForNodes(context, static_cast<int>(config.cluster.num_nodes), patience));
  const bool again = shape->has_value();
  if (!again) {
    WorkerShape found;
    MANTA_CO_RETURN_IF_ERROR(ChooseShape(context, tree, config, adopting, &found));
    *shape = found;
  }
  cuda_ = (*shape)->cuda;
  const bool trains = config.algorithm != config::Algorithm::kEval;
  const bool generates = config.algorithm != config::Algorithm::kSft;
  // Trainer and generator work in turns on the same GPUs or cores, so only the trainer's ranks hold slots.
  std::vector<GroupSpec> specs;
  const bool over_nodes = config.cluster.num_nodes > 1;
  if (trains) {
    const TrainerPlacement& placement = (*shape)->trainer;
    GroupSpec spec = Spec(context, config, "train", placement.ranks, "manta-train");
    (cuda_ ? spec.gpus_per_rank : spec.cpu_slots_per_rank) = 1;
    spec.one_node = placement.one_node;
    spec.ranks_per_node = placement.per_node;
    spec.ports_per_rank = over_nodes && placement.ranks > 1 ? 1 : 0;  // where they meet
    specs.push_back(std::move(spec));
  }
  if (generates) {
    GroupSpec spec = Spec(context, config, "gen", config.cluster.generators, "manta-gen");
    spec.cpu_slots_per_rank = cuda_ || trains ? 0 : 1;
    spec.shares_gpu = cuda_;
    spec.spread = over_nodes;
    specs.push_back(std::move(spec));
    GroupSpec reward = Spec(context, config, "reward", config.cluster.reward_workers, "manta-reward");
    reward.args = {"--threads", absl::StrCat(RewardThreads(config, Cores()))};
    specs.push_back(std::move(reward));
  }
  for (GroupSpec& spec : specs) {
    if (context.cluster->Find(spec.role) != nullptr) found_.insert(spec.role);
    if (!again) continue;
    spec.waits_for_nodes = true;
    spec.placement_deadline = patience;  // for a node that was lost, or another in its place, to join
  }
  MANTA_CO_ASSIGN_OR_RETURN(groups_, co_await StartAll(context, std::move(specs)));
  size_t next = 0;
  if (trains) train_ = groups_[next++];
  if (generates) {
    generate_ = groups_[next++];
    reward_ = groups_[next++];
  }
  CancelWith(&any_, context.stop);
  CancelWith(&trainers_end_, context.stop);
  // Not a loop over a braced list: g++ 12 destroys such a list's copies wrongly in a coroutine.
  if (train_) CancelWith(&any_, train_->token());
  if (train_) CancelWith(&trainers_end_, train_->token());
  if (generate_) CancelWith(&any_, generate_->token());
  if (reward_) CancelWith(&any_, reward_->token());
  if (trains) {
    trainers_ = std::make_unique<TrainerGroup>(*context.loop, train_->channels(), train_->addresses(), NamesOf(*train_),
                                               trainers_end_.token(), TrainerGroup::Deadlines());
  }
  if (generates) {
    generators_ = std::make_unique<GeneratorPool>(*context.loop, generate_->channels(), any_.token(),
                                                  /*generate_deadline=*/absl::Minutes(60));
  }
  co_return any_.cancelled() ? any_.token().status() : absl::OkStatus();
}

void Workers::CancelWith(CancelSource* source, CancelToken token) {
  if (token.cancelled()) {
    source->Cancel(token.status());
    return;
  }
  registrations_.push_back(token.OnCancel([source, token] { source->Cancel(token.status()); }));
}

namespace {

// Where the ranks meet: on one host over its memory; over several at a port of rank 0's, which its node has leased to it.
std::string RendezvousOf(const Group& trainers) {
  const GroupMember& first = trainers.members()[0];
  if (trainers.members().size() == 1) return "";
  if (NodesOf(trainers).size() == 1) return absl::StrCat("unix:@manta-train-", getpid(), "-", trainers.epoch());
  MANTA_CHECK(!first.ports.empty()) << first.actor_id;
  return absl::StrCat(first.address.substr(0, first.address.rfind(':')), ":", first.ports[0]);
}

v1::ConfigureTrainerRequest TrainerRequest(const config::RunConfig& config, bool cuda, const Group& trainers,
                                           const std::string& resume_from) {
  const int ranks = static_cast<int>(trainers.members().size());
  const int nodes = static_cast<int>(NodesOf(trainers).size());
  v1::ConfigureTrainerRequest request;
  request.set_model_path(config.policy.model_name);
  request.set_random_init(config.policy.random_init);
  request.set_seed(config.seed());
  request.mutable_device()->set_kind(cuda ? v1::DEVICE_KIND_CUDA : v1::DEVICE_KIND_CPU);
  request.mutable_device()->set_num_threads(ThreadsFor(config.cluster.trainer_threads, ranks));
  if (nodes > 1) {  // each knows its own machine
    request.mutable_device()->set_num_threads(static_cast<int32_t>(config.cluster.trainer_threads));
    request.set_local_world_size((ranks + nodes - 1) / nodes);
  }
  request.set_dtype(DTypeOf(config.policy.precision));
  request.set_rendezvous(RendezvousOf(trainers));
  auto* optimizer = request.mutable_optimizer();
  optimizer->set_name("adamw");
  optimizer->set_lr(config.policy.optimizer.lr);
  optimizer->set_weight_decay(config.policy.optimizer.weight_decay);
  optimizer->set_beta1(config.policy.optimizer.beta1);
  optimizer->set_beta2(config.policy.optimizer.beta2);
  optimizer->set_eps(config.policy.optimizer.eps);
  optimizer->set_max_grad_norm(config.policy.max_grad_norm);
  for (const auto& entry : config.policy.scheduler.entries) {
    auto* added = request.mutable_schedule()->add_entries();
    added->set_name(entry.name);
    added->mutable_kwargs()->insert(entry.kwargs.begin(), entry.kwargs.end());
  }
  for (int64_t milestone : config.policy.scheduler.milestones) request.mutable_schedule()->add_milestones(milestone);
  request.set_resume_from(resume_from);
  request.set_activation_checkpointing(config.policy.activation_checkpointing);
  request.set_keep_reference(config.algorithm == config::Algorithm::kGrpo &&
                             config.loss.reference_policy_kl_penalty != 0);
  request.set_logprob_chunk_tokens(static_cast<int32_t>(config.policy.logprob_chunk_size.value_or(0)));
  request.set_hf_config_overrides_json(config.policy.hf_config_overrides_json);
  request.set_tokenizer_path(config.policy.tokenizer.name);
  return request;
}

v1::ConfigureGeneratorRequest GeneratorRequest(const config::RunConfig& config, bool cuda) {
  const auto& generation = config.policy.generation;
  v1::ConfigureGeneratorRequest request;
  request.set_model_path(config.policy.model_name);
  request.mutable_device()->set_kind(cuda ? v1::DEVICE_KIND_CUDA : v1::DEVICE_KIND_CPU);
  request.mutable_device()->set_num_threads(ThreadsFor(config.cluster.generator_threads, config.cluster.generators));
  request.set_dtype(DTypeOf(config::GeneratorPrecision(config, cuda)));
  request.set_max_model_len(static_cast<int32_t>(generation.max_model_len));
  request.set_block_size(static_cast<int32_t>(generation.block_size));
  request.set_num_blocks(generation.num_blocks);
  request.set_memory_fraction(generation.memory_fraction);
  request.set_max_num_seqs(static_cast<int32_t>(generation.max_num_seqs));
  request.set_max_batched_tokens(static_cast<int32_t>(generation.max_batched_tokens));
  request.set_prefix_cache(generation.prefix_cache);
  // A run's weights come from the trainer, through the weight channel, before the first sample.
  request.set_dummy_weights(config.algorithm == config::Algorithm::kGrpo);
  request.set_stop_tokenizer_path(config.policy.tokenizer.name);
  request.set_hf_config_overrides_json(config.policy.hf_config_overrides_json);
  return request;
}

}  // namespace

Task<absl::Status> Workers::Configure(RunContext context, const config::RunConfig& config, std::string resume_from) {
  std::vector<Task<absl::Status>> configuring;
  if (generators_) configuring.push_back(generators_->Configure(GeneratorRequest(config, cuda_)));
  absl::StatusOr<v1::ConfigureTrainerReply> trainer;
  std::unique_ptr<FolderProbe> probe;
  if (trainers_) {
    if (config.checkpointing.enabled && (NodesOf(*train_).size() > 1 || !AllHere(*train_))) {
      MANTA_CO_ASSIGN_OR_RETURN(probe, FolderProbe::In(config.checkpointing.checkpoint_dir, trainers_->names()));
    }
    const auto configure = [](Workers* self, v1::ConfigureTrainerRequest request,
                              absl::StatusOr<v1::ConfigureTrainerReply>* reply) -> Task<absl::Status> {
      *reply = co_await self->trainers_->Configure(std::move(request));
      co_return reply->status();
    };
    v1::ConfigureTrainerRequest request = TrainerRequest(config, cuda_, *train_, resume_from);
    if (probe != nullptr) *request.mutable_checkpoints() = probe->request();
    configuring.push_back(configure(this, std::move(request), &trainer));
  }
  context.events->Phase("loading the model");
  const std::vector<absl::Status> results = co_await WhenAll(std::move(configuring));
  MANTA_CO_RETURN_IF_ERROR(FirstError(results));
  if (probe != nullptr) MANTA_CO_RETURN_IF_ERROR(co_await probe->Check(context.loop));
  if (trainers_) num_parameters_ = trainer->num_parameters();
  co_return absl::OkStatus();
}

std::vector<std::shared_ptr<grpc::Channel>> Workers::reward_channels() const {
  return reward_ ? reward_->channels() : std::vector<std::shared_ptr<grpc::Channel>>();
}

}  // namespace manta::controller
