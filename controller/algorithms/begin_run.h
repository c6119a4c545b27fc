// How a run comes by its workers and its state: new ones, at the newest checkpoint or at the beginning; or those that
// are there, where their trainer stands (continuation.h). The same for a new run, for a controller that was started
// again, and for a run one of whose workers has died (worker_restarts.h).
//
// Belongs to the controller's loop. An error is one that the run ends with, or, where a worker has died meanwhile, is
// begun again for; what was started by then is the caller's to end.
#pragma once

#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "common/base/task.h"
#include "common/config/run_config.h"
#include "common/config/tree.h"
#include "common/metrics/run_logger.h"
#include "controller/algorithms/checkpointer.h"
#include "controller/algorithms/continuation.h"
#include "controller/algorithms/workers.h"
#include "controller/cluster/run_context.h"

namespace manta::controller {

// What there is to begin from.
enum class From {
  kCheckpoint,  // no worker; the newest checkpoint, if there is one
  kController,  // the workers of an earlier controller; where they cannot go on, as kCheckpoint
  kTrainer,     // this controller's trainer, other workers having died and been ended; likewise
};

// A run that is ready to go on, and from where.
struct Begun {
  std::unique_ptr<Workers> workers;
  std::unique_ptr<metrics::RunLogger> logger;
  std::optional<Checkpointer::Found> checkpoint;  // the newest
  TrainingInfo start;
  bool continued = false;                 // with workers that were there
  std::optional<TrainedStep> unfinished;  // their last step, where its line of metrics is not there yet
};

Task<absl::Status> BeginRun(RunContext context, const config::Tree& tree, const config::RunConfig& config,
                            Checkpointer* checkpointer, From from, std::optional<WorkerShape>* shape, Begun* begun);

}  // namespace manta::controller
