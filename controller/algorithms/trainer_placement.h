// How many ranks a trainer has and how many of them lie on a node, from what the configuration asks for and what the nodes
// have. A pure function; thread-safe.
//
//   cluster.num_nodes 1   all on one node: as many as `trainer_ranks` says, else one a GPU, or one on CPU
//   cluster.num_nodes n   the same number on each of n nodes: `trainer_ranks` / n, else `gpus_per_node` where that says something,
//                         else as many as n nodes have GPUs; on CPU one. Fewer ranks than nodes lie wherever there is room.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/config/run_config.h"
#include "common/config/tree.h"
#include "controller/cluster/job_cluster.h"

namespace manta::controller {

struct TrainerPlacement {
  int ranks = 1;
  int per_node = 0;      // ranks on each node that has any; 0: as there is room
  bool one_node = true;  // all on the same
  std::string warning;   // for the user; empty: none
};

// INVALID_ARGUMENT "file:line: key: ..." where the nodes cannot have what is asked for.
[[nodiscard]] absl::StatusOr<TrainerPlacement> PlaceTrainer(const config::Tree& tree, const config::RunConfig& run, bool cuda,
                                                            const std::vector<JobCluster::NodeGpus>& nodes);

// Of a trainer that is there already, with so many ranks.
TrainerPlacement PlacementOf(const config::RunConfig& run, int ranks);

}  // namespace manta::controller
