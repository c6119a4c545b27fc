#include "controller/algorithms/run.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/base/status.h"
#include "common/config/tree.h"
#include "common/rpc/call.h"
#include "controller/actors/actor_groups.h"
#include "controller/algorithms/begin_run.h"
#include "controller/algorithms/environments.h"
#include "controller/algorithms/loop_context.h"
#include "controller/algorithms/worker_restarts.h"
#include "controller/algorithms/workers.h"
#include "manta/v1/reward.grpc.pb.h"

namespace manta::controller {
namespace {

std::map<std::string, Scorer> Scorers(const config::RunConfig& config) {
  std::map<std::string, Scorer> scorers;
  for (const auto& [name, env] : config.env) {
    scorers[name] = {.verifier = env.verifier,
                     .options_json = env.options_json,
                     .deadline_per_sample = absl::Milliseconds(env.deadline_ms)};
  }
  return scorers;
}

// Asks the first reward worker what it knows. Before the first sample.
Task<absl::Status> CheckEnvironments(RunContext context, const config::Tree& tree, const config::RunConfig& config,
                                     std::shared_ptr<grpc::Channel> reward, CancelToken cancel) {
  const auto stub = v1::RewardService::NewStub(reward);
  rpc::CallOptions options{.deadline = absl::Seconds(20), .cancel = cancel};  // named: see task.h
  v1::ListVerifiersRequest request;
  const absl::StatusOr<v1::ListVerifiersReply> reply =
      co_await rpc::Call(*context.loop, stub->async(), &rpc::AsyncOf<v1::RewardService>::ListVerifiers,
                         std::move(request), std::move(options));
  if (!reply.ok()) co_return Annotate(reply.status(), "list the verifiers");
  co_return CheckVerifiers(tree, config, {reply->names().begin(), reply->names().end()});
}

// The first and the last measurement of what people look for, side by side.
std::string BeforeAndAfter(const metrics::RunLogger& logger) {
  std::string text;
  for (const char* name : {"validation/accuracy", "validation/val_loss", "train/reward", "train/loss"}) {
    const double* first = nullptr;
    const double* last = nullptr;
    for (const auto& record : logger.history()) {
      const auto it = record.values.find(name);
      if (it == record.values.end()) continue;
      if (first == nullptr) first = &it->second;
      last = &it->second;
    }
    if (first != nullptr && first != last) absl::StrAppendFormat(&text, "%-20s %8.4f -> %.4f\n", name, *first, *last);
  }
  return text;
}

Task<absl::StatusOr<RunOutcome>> RunLoop(LoopContext context) {
  switch (context.config.algorithm) {
    case config::Algorithm::kGrpo:
      return RunGrpo(context);
    case config::Algorithm::kSft:
      return RunSft(context);
    case config::Algorithm::kEval:
      return RunEval(context);
    case config::Algorithm::kActors:
      break;  // no loop of ours
  }
  MANTA_CHECK(false) << "no such algorithm";
  std::abort();
}

// What stays over a run's restarts.
struct Lasting {
  const RunContext context;
  const config::Tree& tree;
  const config::RunConfig& config;
  const std::string config_yaml;
  const PromptBuilder& prompts;
  Checkpointer checkpointer;
  std::optional<WorkerShape> shape;  // once it is known
};

// From where the run stands to its end, or to a worker's.
Task<absl::StatusOr<RunOutcome>> Live(Lasting* run, From from, Begun* begun) {
  const RunContext& context = run->context;
  const config::RunConfig& config = run->config;
  MANTA_CO_RETURN_IF_ERROR(co_await BeginRun(context, run->tree, config, &run->checkpointer, from, &run->shape, begun));
  const std::unique_ptr<Workers>& workers = begun->workers;
  if (const auto rewards = workers->reward_channels(); !rewards.empty()) {
    MANTA_CO_RETURN_IF_ERROR(co_await CheckEnvironments(context, run->tree, config, rewards.front(), workers->token()));
  }
  std::unique_ptr<RolloutEngine> rollouts;
  if (workers->generators() != nullptr) {
    rollouts = std::make_unique<RolloutEngine>(*context.loop, *workers->generators(), workers->reward_channels(),
                                               Scorers(config), run->prompts.tokenizer(), workers->token());
  }
  if (workers->num_parameters() > 0) {
    context.events->Text(absl::StrFormat("policy: %s, %.3f M parameters, %s on %s", config.policy.model_name,
                                         static_cast<double>(workers->num_parameters()) / 1e6, config.policy.precision,
                                         workers->cuda() ? "GPU" : "CPU"));
  }
  LoopContext loop{.loop = *context.loop,
                   .config = config,
                   .config_yaml = run->config_yaml,
                   .run_dir = context.run_dir,
                   .stop = workers->token(),
                   .events = *context.events,
                   .logger = *begun->logger,
                   .checkpointer = run->checkpointer,
                   .prompts = run->prompts,
                   .trainers = workers->trainers(),
                   .generators = workers->generators(),
                   .rollouts = rollouts.get(),
                   .start = begun->start,
                   .job = context.job,
                   .continued = begun->continued,
                   .unfinished = std::move(begun->unfinished)};
  MANTA_CO_ASSIGN_OR_RETURN(RunOutcome outcome, co_await RunLoop(loop));
  if (outcome.checkpoint.empty() && begun->checkpoint) outcome.checkpoint = begun->checkpoint->path.string();
  if (config.algorithm != config::Algorithm::kEval) {
    MANTA_CO_RETURN_IF_ERROR(begun->logger->WritePlot(context.run_dir.filename().string()));
    outcome.summary = absl::StrCat(begun->logger->EndTable(), "\n", BeforeAndAfter(*begun->logger), outcome.summary);
  }
  co_return outcome;
}

constexpr absl::Duration kReason = absl::Milliseconds(2500);  // to hear of a worker's end after a call to it broke
constexpr absl::Duration kGrace = absl::Seconds(1), kGone = absl::Seconds(60);
constexpr int kLastLines = 10;

// Why the run has failed: a worker's death, where that is behind `status`.
Task<absl::Status> Why(RunContext context, const Begun* begun, absl::Status status) {
  if (GetErrorInfo(status).origin() == v1::ORIGIN_USER) co_return status;
  if (begun->workers == nullptr) co_return co_await context.cluster->Explain(status);
  const CancelToken died = begun->workers->token();
  (void)co_await Sleep(*context.loop, kReason, died);
  if (died.cancelled()) co_return died.status();
  co_return status;
}

// Whether new workers can help: one has died, or its node has, or one has not answered for as long as it may.
bool IsDeath(const absl::Status& why, bool began) {
  const v1::Origin origin = GetErrorInfo(why).origin();
  return origin == v1::ORIGIN_WORKER_DIED || origin == v1::ORIGIN_NODE_LOST || (began && origin == v1::ORIGIN_TIMEOUT);
}

// What a restart begins with, and what of the run is lost by it.
struct Restart {
  From from = From::kCheckpoint;
  std::vector<std::string> ends;  // roles of the groups to be started again
  int64_t step = 0;               // the run goes on after it
};

absl::StatusOr<Restart> PlanRestart(const RunContext& context, const config::RunConfig& config, const Begun& begun) {
  Restart restart{.ends = Workers::Roles(config)};
  if (begun.workers != nullptr && begun.workers->trains()) {
    std::vector<std::string> dead = begun.workers->DeadRoles();
    if (!dead.empty() && std::find(dead.begin(), dead.end(), "train") == dead.end()) {
      return Restart{.from = From::kTrainer, .ends = std::move(dead), .step = context.events->step()};
    }
  }
  if (!config.checkpointing.enabled || config.algorithm == config::Algorithm::kEval) return restart;
  MANTA_ASSIGN_OR_RETURN(const auto newest, Checkpointer::Newest(config.checkpointing.checkpoint_dir));
  if (newest) restart.step = newest->info.step;
  return restart;
}

std::string Describe(const Restart& restart, const WorkerRestarts& restarts, absl::Duration wait, int64_t done) {
  std::string text =
      absl::StrFormat("restart %d of %d in %.1f s, ", restarts.count(), restarts.most(), absl::ToDoubleSeconds(wait));
  if (restart.from == From::kTrainer) {
    return absl::StrCat(text, "of ", absl::StrJoin(restart.ends, " and "),
                        " alone: the trainer stays, and no step is lost");
  }
  absl::StrAppend(&text, "from the ",
                  restart.step > 0 ? absl::StrCat("checkpoint of step ", restart.step) : "beginning");
  if (done == restart.step + 1) absl::StrAppend(&text, "; step ", done, " is done again");
  if (done > restart.step + 1) absl::StrAppend(&text, "; steps ", restart.step + 1, " to ", done, " are done again");
  return text;
}

std::string LastLines(const absl::Status& why) {
  std::string text;
  const v1::ErrorInfo info = GetErrorInfo(why);
  for (int i = std::max(0, info.last_lines_size() - kLastLines); i < info.last_lines_size(); ++i) {
    absl::StrAppend(&text, "\n  | ", info.last_lines(i));
  }
  return text;
}

// Over as many lives as cluster.max_worker_restarts allows. Their number is this process's: a controller that is
// started again counts from 0, which cluster.max_controller_restarts bounds.
Task<absl::StatusOr<RunOutcome>> LiveOn(Lasting* run, From from) {
  const RunContext& context = run->context;
  WorkerRestarts restarts(static_cast<int>(run->config.cluster.max_worker_restarts), run->config.seed());
  if (restarts.most() > 0) context.cluster->HandleFailuresOf(Workers::Roles(run->config));
  while (true) {
    auto begun = std::make_unique<Begun>();
    absl::StatusOr<RunOutcome> outcome = co_await Live(run, from, begun.get());
    if (outcome.ok() || restarts.most() == 0 || context.stop.cancelled()) co_return outcome;
    const absl::Status why = co_await Why(context, begun.get(), outcome.status());
    if (context.stop.cancelled() || !IsDeath(why, begun->workers != nullptr)) co_return outcome;
    MANTA_CO_ASSIGN_OR_RETURN(const Restart restart, PlanRestart(context, run->config, *begun));
    if (!restarts.Take(restart.step)) {
      co_return Annotate(why, absl::StrCat("after ", restarts.most(),
                                           " restarts (cluster.max_worker_restarts) since step ", restarts.furthest()));
    }
    const absl::Duration wait = restarts.Backoff();
    const std::string what =
        absl::StrCat(std::string(why.message()), ": ", Describe(restart, restarts, wait, context.events->step()));
    context.events->Warning(absl::StrCat(what, LastLines(why)));
    context.cluster->CountRestart(what);
    begun.reset();  // the calls are over; what they were made with is not needed any more
    MANTA_CO_RETURN_IF_ERROR(co_await context.cluster->EndGroups(restart.ends, kGrace, kGone));
    context.events->Phase(absl::StrFormat("waiting %.1f s before the restart", absl::ToDoubleSeconds(wait)));
    MANTA_CO_RETURN_IF_ERROR(co_await Sleep(*context.loop, wait, context.stop));
    from = restart.from;
  }
}

}  // namespace

Task<absl::StatusOr<RunOutcome>> RunAlgorithm(RunContext context) {
  MANTA_CO_ASSIGN_OR_RETURN(const config::Tree tree, config::LoadTree(context.config_path, {}));
  MANTA_CO_ASSIGN_OR_RETURN(const config::RunConfig config, config::ParseRunConfig(tree));
  context.events->set_algorithm(config::AlgorithmName(config.algorithm));

  std::shared_ptr<ActorGroups> actors;
  if (!config.actors.empty()) {
    MANTA_CO_ASSIGN_OR_RETURN(actors, co_await ActorGroups::Start(context, config.actors));
  }
  if (config.algorithm == config::Algorithm::kActors) {
    MANTA_CO_RETURN_IF_ERROR(co_await actors->WaitEnded(context.stop));
    co_return RunOutcome();
  }

  MANTA_CO_ASSIGN_OR_RETURN(const PromptBuilder prompts, PromptBuilder::Load(config));
  Checkpointer checkpointer({.directory = config.checkpointing.checkpoint_dir,
                             .keep_top_k = config.checkpointing.keep_top_k,
                             .higher_is_better = config.checkpointing.higher_is_better});
  if (config.checkpointing.enabled && config.algorithm != config::Algorithm::kEval) {
    const absl::Status taken = checkpointer.TakeFolder(context.run_dir);
    if (!taken.ok()) co_return Annotate(taken, tree.Where("checkpointing.checkpoint_dir"));
  }
  Lasting run{context, tree, config, tree.ToYaml(), prompts, std::move(checkpointer), std::nullopt};
  const From from = context.resumed ? From::kController : From::kCheckpoint;
  co_return co_await LiveOn(&run, from);
}

}  // namespace manta::controller
