// What a loop (GRPO, SFT, evaluation) is given: the configuration, its workers, where to report, where to write.
//
// A view made by run.cc; everything outlives the loop's task and belongs to the controller's loop thread.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "common/base/event_loop.h"
#include "common/base/task.h"
#include "common/config/run_config.h"
#include "common/metrics/run_logger.h"
#include "controller/algorithms/checkpointer.h"
#include "controller/algorithms/continuation.h"
#include "controller/algorithms/trainer_group.h"
#include "controller/cluster/run_context.h"
#include "controller/data/prompts.h"
#include "controller/rollout/rollout.h"

namespace manta::controller {

struct LoopContext {
  EventLoop& loop;
  const config::RunConfig& config;
  const std::string& config_yaml;  // resolved, for checkpoints
  std::filesystem::path run_dir;
  CancelToken stop;                // also cancelled when a worker dies
  RunEvents& events;
  metrics::RunLogger& logger;
  Checkpointer& checkpointer;
  const PromptBuilder& prompts;
  TrainerGroup* trainers = nullptr;     // null for an evaluation
  GeneratorPool* generators = nullptr;  // null for SFT
  RolloutEngine* rollouts = nullptr;    // null for SFT
  TrainingInfo start;                   // where to go on; zeros for a new run
  std::string job;                      // what keys of calls begin with
  // The workers are those of an earlier controller of this run, and the run's folder has what it has written.
  bool continued = false;
  // Their last step, `start` being behind it, where its line of metrics is not there yet.
  std::optional<TrainedStep> unfinished;
};

Task<absl::StatusOr<RunOutcome>> RunGrpo(LoopContext context);
Task<absl::StatusOr<RunOutcome>> RunSft(LoopContext context);
Task<absl::StatusOr<RunOutcome>> RunEval(LoopContext context);

}  // namespace manta::controller
