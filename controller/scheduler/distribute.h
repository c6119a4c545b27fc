// Distribute: how many ranks go to which node, given how many each node has room for. Pure integers, so that it can be
// compared with every possible answer on small cases (place_random_test.cc). Thread-safe.
#pragma once

#include <optional>
#include <vector>

#include "manta/v1/cluster.pb.h"

namespace manta::controller::scheduler {

// Nodes in the order of ranks; a domain's nodes are neighbours.
struct RoomOnNode {
  int domain = 0;  // 0, 1, 2 ... rising
  int room = 0;    // ranks
};
struct Share {
  int node = 0;  // index into the rooms
  int ranks = 0;
  bool operator==(const Share&) const = default;
};

// Shares in the order of ranks, or none where it cannot be done: an answer is found whenever there is one.
//   PACK (or unspecified)  one node that suffices (of several the one with the least room: large gaps stay for large
//                          groups), else one domain that suffices (likewise), else as few domains as possible; as few
//                          nodes of each as possible
//   SPREAD                 as even over nodes as their room allows; the last round evens out over domains
//   STRICT_PACK            one node
//   STRICT_SPREAD          no two ranks on a node, else as PACK
// `segment` s > 0: ranks [k s, (k+1) s) lie in one domain; the last segment may be shorter.
std::optional<std::vector<Share>> Distribute(std::vector<RoomOnNode> rooms, int num_ranks, v1::Strategy strategy,
                                             int segment);

}  // namespace manta::controller::scheduler
