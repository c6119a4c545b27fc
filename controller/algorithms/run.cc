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
  std::optional<Checkpointer::Found> resumed;
  if (config.checkpointing.enabled && config.algorithm != config::Algorithm::kEval) {
    MANTA_CO_ASSIGN_OR_RETURN(resumed, checkpointer.FindLatest());
  }
  if (resumed) {
    context.events->Text(absl::StrCat("resuming after step ", resumed->info.step, " from ", resumed->path.string()));
    if (resumed->info.data_seed != config.seed()) {
      context.events->Warning(absl::StrCat("the checkpoint's seed is ", resumed->info.data_seed, " and this run's ",
                                           config.seed(), ": what follows repeats neither run"));
    }
  }
  MANTA_CO_ASSIGN_OR_RETURN(std::unique_ptr<metrics::RunLogger> logger, OpenLogger(context, config, resumed));

  // Named before it is awaited: g++ 12 copies the value of ?: inside a co_await bit by bit.
  std::string resume_from;
  if (resumed) resume_from = (resumed->path / "policy").string();
  MANTA_CO_ASSIGN_OR_RETURN(std::unique_ptr<Workers> workers,
                            co_await Workers::Start(context, tree, config, std::move(resume_from)));
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
                   .logger = *logger,
                   .checkpointer = checkpointer,
                   .prompts = prompts,
                   .trainers = workers->trainers(),
                   .generators = workers->generators(),
                   .rollouts = rollouts.get(),
                   .start = resumed ? resumed->info : TrainingInfo()};
  MANTA_CO_ASSIGN_OR_RETURN(RunOutcome outcome, co_await RunLoop(loop));
  if (outcome.checkpoint.empty() && resumed) outcome.checkpoint = resumed->path.string();
  if (config.algorithm != config::Algorithm::kEval) {
    MANTA_CO_RETURN_IF_ERROR(logger->WritePlot(context.run_dir.filename().string()));
    outcome.summary = absl::StrCat(logger->EndTable(), "\n", BeforeAndAfter(*logger), outcome.summary);
  }
  co_return outcome;
}

}  // namespace manta::controller
