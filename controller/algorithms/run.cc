#include "controller/algorithms/run.h"

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/file.h"
#include "common/base/status.h"
#include "common/config/tree.h"
#include "common/rpc/call.h"
#include "controller/actors/actor_groups.h"
#include "controller/algorithms/environments.h"
#include "controller/algorithms/loop_context.h"
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
      co_await rpc::Call(*context.loop, stub->async(), &rpc::AsyncOf<v1::RewardService>::ListVerifiers, std::move(request),
                         std::move(options));
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

// With the lines of the run that saved the checkpoint. Where they cannot be had, the run goes on without them.
absl::StatusOr<std::unique_ptr<metrics::RunLogger>> OpenLogger(const RunContext& context, const config::RunConfig& config,
                                                               const std::optional<Checkpointer::Found>& resumed) {
  metrics::RunLoggerOptions options{.run_dir = context.run_dir, .tensorboard = config.logger.tensorboard_enabled};
  if (resumed) {
    const TrainingInfo& info = resumed->info;
    options.restored = {info.step, info.time, info.weight_version, info.metrics};
    options.earlier_run = info.run_dir;
    if (std::error_code error; info.run_dir.empty() || !std::filesystem::exists(options.earlier_run / "metrics.jsonl", error)) {
      context.events->Warning(absl::StrCat("metrics.jsonl begins at step ", info.step, ": that of the run before, ",
                                           options.earlier_run.string(), ", is not there any more"));
    }
  }
  auto logger = metrics::RunLogger::Open(options);
  if (logger.ok() || !resumed) return logger;
  context.events->Warning(absl::StrCat("the metrics of the run before are left out: ", std::string(logger.status().message())));
  options.earlier_run.clear();
  return metrics::RunLogger::Open(options);
}

// A run's state as a controller finds it: workers that are ready to go on, and from where.
struct Begun {
  std::unique_ptr<Workers> workers;
  std::unique_ptr<metrics::RunLogger> logger;
  std::optional<Checkpointer::Found> checkpoint;  // the newest
  TrainingInfo start;
  bool continued = false;
  std::optional<TrainedStep> unfinished;
};

// TensorBoard's files of the controller before: the logger writes all of its lines again.
absl::Status DropEvents(const RunContext& context) {
  std::error_code error;
  std::filesystem::remove_all(context.run_dir / "tb", error);
  return error ? ErrnoError("remove", context.run_dir / "tb", error.value()) : absl::OkStatus();
}

// With the workers of an earlier controller, where they are.
Task<absl::Status> Continue(RunContext context, const config::Tree& tree, const config::RunConfig& config,
                            Checkpointer* checkpointer, Begun* begun) {
  if (config.algorithm == config::Algorithm::kEval) {
    co_return absl::FailedPreconditionError("an evaluation keeps nothing that it could go on from");
  }
  MANTA_CO_ASSIGN_OR_RETURN(begun->workers, co_await Workers::Adopt(context, tree, config));
  if (config.checkpointing.enabled) {
    MANTA_CO_ASSIGN_OR_RETURN(begun->checkpoint, checkpointer->FindLatest());
  }
  // Trainers that have taken no step yet are where they were configured: at what was the newest checkpoint then, and is.
  std::optional<TrainedStep>& trained = begun->workers->trained();
  if (trained) {
    begun->start = InfoOf(trained->note);
  } else if (begun->checkpoint) {
    begun->start = begun->checkpoint->info;
  }
  std::error_code error;
  if (std::filesystem::exists(context.run_dir / "metrics.jsonl", error)) {
    metrics::RunLoggerOptions options{.run_dir = context.run_dir, .tensorboard = config.logger.tensorboard_enabled};
    options.restored = metrics::StepRecord{.step = begun->start.step};
    MANTA_CO_ASSIGN_OR_RETURN(begun->logger, metrics::RunLogger::Open(options));
  } else {
    MANTA_CO_ASSIGN_OR_RETURN(begun->logger, OpenLogger(context, config, begun->checkpoint));
  }
  const auto& history = begun->logger->history();
  const bool logged = !history.empty() && history.back().step == begun->start.step;
  if (trained && !logged) begun->unfinished = std::move(trained);
  begun->continued = true;
  context.events->Text(absl::StrCat("the controller was started again: the workers are those that it had, and the run goes on ",
                                    begun->unfinished ? "in step " : "after step ", begun->start.step));
  co_return absl::OkStatus();
}

// With workers of its own, from the newest checkpoint.
Task<absl::Status> Begin(RunContext context, const config::Tree& tree, const config::RunConfig& config,
                         Checkpointer* checkpointer, Begun* begun) {
  if (config.checkpointing.enabled && config.algorithm != config::Algorithm::kEval) {
    MANTA_CO_ASSIGN_OR_RETURN(begun->checkpoint, checkpointer->FindLatest());
  }
  const std::optional<Checkpointer::Found>& resumed = begun->checkpoint;
  if (resumed) {
    context.events->Text(absl::StrCat("resuming after step ", resumed->info.step, " from ", resumed->path.string()));
    if (resumed->info.data_seed != config.seed()) {
      context.events->Warning(absl::StrCat("the checkpoint's seed is ", resumed->info.data_seed, " and this run's ",
                                           config.seed(), ": what follows repeats neither run"));
    }
    begun->start = resumed->info;
  }
  MANTA_CO_ASSIGN_OR_RETURN(begun->logger, OpenLogger(context, config, resumed));
  // Named before it is awaited: g++ 12 copies the value of ?: inside a co_await bit by bit.
  std::string resume_from;
  if (resumed) resume_from = (resumed->path / "policy").string();
  MANTA_CO_ASSIGN_OR_RETURN(begun->workers, co_await Workers::Start(context, tree, config, std::move(resume_from)));
  co_return absl::OkStatus();
}

// A job that an earlier controller has begun goes on with its workers, or, where they cannot, without.
Task<absl::Status> BeginOrContinue(RunContext context, const config::Tree& tree, const config::RunConfig& config,
                                   Checkpointer* checkpointer, Begun* begun) {
  if (context.resumed) {
    MANTA_CO_RETURN_IF_ERROR(DropEvents(context));
    const absl::Status continued = co_await Continue(context, tree, config, checkpointer, begun);
    if (continued.ok()) co_return continued;
    if (context.stop.cancelled()) co_return context.stop.status();
    context.events->Warning(absl::StrCat("the controller was started again, and the workers that it had cannot go on: ",
                                         std::string(continued.message()),
                                         "; beginning with new ones, at the newest checkpoint if there is one"));
    *begun = Begun();
    const std::vector<std::string> roles = Workers::Roles(config);  // actors of the user's own stay
    MANTA_CO_RETURN_IF_ERROR(co_await context.cluster->EndGroups(roles, absl::Seconds(1), absl::Seconds(60)));
  }
  co_return co_await Begin(context, tree, config, checkpointer, begun);
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

}  // namespace

Task<absl::StatusOr<RunOutcome>> RunAlgorithm(RunContext context) {
  MANTA_CO_ASSIGN_OR_RETURN(const config::Tree tree, config::LoadTree(context.config_path, {}));
  MANTA_CO_ASSIGN_OR_RETURN(const config::RunConfig config, config::ParseRunConfig(tree));
  const std::string config_yaml = tree.ToYaml();
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
  Begun begun;
  MANTA_CO_RETURN_IF_ERROR(co_await BeginOrContinue(context, tree, config, &checkpointer, &begun));
  const std::unique_ptr<Workers>& workers = begun.workers;
  if (const auto rewards = workers->reward_channels(); !rewards.empty()) {
    MANTA_CO_RETURN_IF_ERROR(co_await CheckEnvironments(context, tree, config, rewards.front(), workers->token()));
  }
  std::unique_ptr<RolloutEngine> rollouts;
  if (workers->generators() != nullptr) {
    rollouts = std::make_unique<RolloutEngine>(*context.loop, *workers->generators(), workers->reward_channels(),
                                               Scorers(config), prompts.tokenizer(), workers->token());
  }
  if (workers->num_parameters() > 0) {
    context.events->Text(absl::StrFormat("policy: %s, %.3f M parameters, %s on %s", config.policy.model_name,
                                         static_cast<double>(workers->num_parameters()) / 1e6, config.policy.precision,
                                         workers->cuda() ? "GPU" : "CPU"));
  }
  LoopContext loop{.loop = *context.loop,
                   .config = config,
                   .config_yaml = config_yaml,
                   .run_dir = context.run_dir,
                   .stop = workers->token(),
                   .events = *context.events,
                   .logger = *begun.logger,
                   .checkpointer = checkpointer,
                   .prompts = prompts,
                   .trainers = workers->trainers(),
                   .generators = workers->generators(),
                   .rollouts = rollouts.get(),
                   .start = begun.start,
                   .job = context.job,
                   .continued = begun.continued,
                   .unfinished = std::move(begun.unfinished)};
  MANTA_CO_ASSIGN_OR_RETURN(RunOutcome outcome, co_await RunLoop(loop));
  if (outcome.checkpoint.empty() && begun.checkpoint) outcome.checkpoint = begun.checkpoint->path.string();
  if (config.algorithm != config::Algorithm::kEval) {
    MANTA_CO_RETURN_IF_ERROR(begun.logger->WritePlot(context.run_dir.filename().string()));
    outcome.summary = absl::StrCat(begun.logger->EndTable(), "\n", BeforeAndAfter(*begun.logger), outcome.summary);
  }
  co_return outcome;
}

}  // namespace manta::controller
