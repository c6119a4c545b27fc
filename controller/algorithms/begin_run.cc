#include "controller/algorithms/begin_run.h"

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/file.h"
#include "common/base/status.h"

namespace manta::controller {
namespace {

// With the lines of the run that saved the checkpoint. Where they cannot be had, the run goes on without them.
absl::StatusOr<std::unique_ptr<metrics::RunLogger>> OpenLogger(const RunContext& context,
                                                               const config::RunConfig& config,
                                                               const std::optional<Checkpointer::Found>& resumed) {
  metrics::RunLoggerOptions options{.run_dir = context.run_dir, .tensorboard = config.logger.tensorboard_enabled};
  if (resumed) {
    const TrainingInfo& info = resumed->info;
    options.restored = {info.step, info.time, info.weight_version, info.metrics};
    options.earlier_run = info.run_dir;
    if (std::error_code error;
        info.run_dir.empty() || !std::filesystem::exists(options.earlier_run / "metrics.jsonl", error)) {
      context.events->Warning(absl::StrCat("metrics.jsonl begins at step ", info.step, ": that of the run before, ",
                                           options.earlier_run.string(), ", is not there any more"));
    }
  }
  auto logger = metrics::RunLogger::Open(options);
  if (logger.ok() || !resumed) return logger;
  context.events->Warning(
      absl::StrCat("the metrics of the run before are left out: ", std::string(logger.status().message())));
  options.earlier_run.clear();
  return metrics::RunLogger::Open(options);
}

// TensorBoard's files of an earlier life of this run: the logger writes all of its lines again.
absl::Status DropEvents(const RunContext& context) {
  std::error_code error;
  std::filesystem::remove_all(context.run_dir / "tb", error);
  return error ? ErrnoError("remove", context.run_dir / "tb", error.value()) : absl::OkStatus();
}

// With workers that are there, where the trainer stands.
Task<absl::Status> Continue(RunContext context, const config::Tree& tree, const config::RunConfig& config,
                            Checkpointer* checkpointer, From from, std::optional<WorkerShape>* shape, Begun* begun) {
  if (config.algorithm == config::Algorithm::kEval) {
    co_return absl::FailedPreconditionError("an evaluation keeps nothing that it could go on from");
  }
  if (from == From::kTrainer) {
    MANTA_CO_ASSIGN_OR_RETURN(begun->workers, co_await Workers::Rejoin(context, tree, config, shape));
  } else {
    MANTA_CO_ASSIGN_OR_RETURN(begun->workers, co_await Workers::Adopt(context, tree, config, shape));
  }
  if (config.checkpointing.enabled) {
    MANTA_CO_ASSIGN_OR_RETURN(begun->checkpoint, checkpointer->FindLatest());
  }
  // Trainers that have taken no step yet are where they were configured: at what was the newest checkpoint then, and
  // is.
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
  context.events->Text(
      absl::StrCat(from == From::kTrainer
                       ? "the trainer is as it was, and the run goes on "
                       : "the controller was started again: the workers are those that it had, and the run goes on ",
                   begun->unfinished ? "in step " : "after step ", begun->start.step));
  co_return absl::OkStatus();
}

// With workers of its own, from the newest checkpoint.
Task<absl::Status> Begin(RunContext context, const config::Tree& tree, const config::RunConfig& config,
                         Checkpointer* checkpointer, std::optional<WorkerShape>* shape, Begun* begun) {
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
  MANTA_CO_ASSIGN_OR_RETURN(begun->workers,
                            co_await Workers::Start(context, tree, config, std::move(resume_from), shape));
  co_return absl::OkStatus();
}

}  // namespace

Task<absl::Status> BeginRun(RunContext context, const config::Tree& tree, const config::RunConfig& config,
                            Checkpointer* checkpointer, From from, std::optional<WorkerShape>* shape, Begun* begun) {
  MANTA_CO_RETURN_IF_ERROR(DropEvents(context));
  if (from == From::kController || from == From::kTrainer) {
    const absl::Status continued = co_await Continue(context, tree, config, checkpointer, from, shape, begun);
    if (continued.ok()) co_return continued;
    if (context.stop.cancelled()) co_return context.stop.status();
    context.events->Warning(absl::StrCat(
        from == From::kTrainer ? "the trainer that is left cannot go on: "
                               : "the controller was started again, and the workers that it had cannot go on: ",
        std::string(continued.message()), "; beginning with new ones, at the newest checkpoint if there is one"));
    *begun = Begun();
    if (from == From::kController) shape->reset();
    const std::vector<std::string> roles = Workers::Roles(config);  // actors of the user's own stay
    MANTA_CO_RETURN_IF_ERROR(co_await context.cluster->EndGroups(roles, absl::Seconds(1), absl::Seconds(60)));
  }
  co_return co_await Begin(context, tree, config, checkpointer, shape, begun);
}

}  // namespace manta::controller
