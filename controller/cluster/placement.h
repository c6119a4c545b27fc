// Where the ranks of a group go: a pure function of what the nodes have free. Thread-safe.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace manta::controller {

struct NodeCapacity {
  std::string name;
  int cpu_slots = 0;  // all
  int cpu_free = 0;
  int num_gpus = 0;            // all
  std::vector<int> gpus_free;  // indices, ascending
};

struct PlacementRequest {
  std::string role;
  int num_ranks = 1;
  int cpu_slots_per_rank = 0;
  int gpus_per_rank = 0;
};

struct RankPlacement {
  std::string node;
  std::vector<int> gpus;
};

// All ranks or none. A rank lies on one node; ranks come in topology order: those of a node together, nodes by name
// ("node-2" before "node-10"), GPUs by index. A group that fits on one node goes to the fullest node that has room for
// it, which keeps large gaps for large groups. FAILED_PRECONDITION: even with everything free it does not fit; the
// message says what is missing ("train needs 3 CPU slots, 2 registered"). RESOURCE_EXHAUSTED: it fits, but not beside
// what runs now.
[[nodiscard]] absl::StatusOr<std::vector<RankPlacement>> Place(std::vector<NodeCapacity> nodes,
                                                               const PlacementRequest& request);

// Orders "node-2" before "node-10".
bool NaturalLess(const std::string& a, const std::string& b);

}  // namespace manta::controller
