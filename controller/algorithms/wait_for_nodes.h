// The wait of a run over several machines for all of them, with a phase that says how many have come.
#pragma once

#include "absl/time/time.h"
#include "common/base/task.h"
#include "controller/cluster/run_context.h"

namespace manta::controller {

// Until `count` nodes are there. DEADLINE_EXCEEDED names those that are.
Task<absl::Status> WaitForNodes(RunContext context, int count, absl::Duration patience);

}  // namespace manta::controller
