// What a StartActor's Limits become on this machine: resource limits of the process, and a memory cgroup where there
// are any.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "controller/node/memory_group.h"
#include "controller/node/process.h"
#include "manta/v1/node.pb.h"

namespace manta::node {

struct WorkerLimits {
  std::vector<ProcessSpec::Limit> resources;
  std::optional<MemoryGroup> memory;
  std::vector<std::string> notes;  // for the worker's log
};

// OUT_OF_RANGE where more is asked for than this process may give.
[[nodiscard]] absl::StatusOr<WorkerLimits> ApplyLimits(const v1::Limits& limits, const std::string& name);

}  // namespace manta::node
