// The entry to a run: reads the configuration that the controller was given, starts the workers, runs the loop.
#pragma once

#include "common/base/task.h"
#include "controller/cluster/run_context.h"

namespace manta::controller {

// Runs the algorithm whose tree the configuration has, to its end. The caller stops the cluster afterwards.
[[nodiscard]] Task<absl::StatusOr<RunOutcome>> RunAlgorithm(RunContext context);

}  // namespace manta::controller
