// Place: where the ranks of a request go: a pure function of what the nodes have and what of it is taken. Thread-safe.
//
// All ranks or none; a rank lies on one node. Where all ranks ask for the same they come in topology order: NVLink
// domains, in them nodes by name ("node-2" before "node-10"), on them GPUs by index. With ranks_per_node every node that is
// used has exactly so many of them, and the nodes lie in as few domains as possible. Unequal ranks keep their own
// order, are placed largest first, and may be refused a packing that only an exhaustive search would find.
//
//   FAILED_PRECONDITION   even with everything free it does not fit: "train needs 16 GPUs (16 ranks of 1), 8
//   registered;
//                         3 nodes: label zone=a missing; node-3 absent"
//   RESOURCE_EXHAUSTED    it fits, but not now: beside what runs, or while a node is silent
//   INVALID_ARGUMENT      no sense in it (no rank, less than nothing)
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "controller/scheduler/cluster_view.h"
#include "manta/v1/cluster.pb.h"

namespace manta::controller::scheduler {

using Placement = std::vector<PlacedRank>;

int NumRanks(const v1::PlacementRequest& request);
// What rank `rank` asks for.
const v1::Bundle& BundleOf(const v1::PlacementRequest& request, int rank);
absl::Status CheckRequest(const v1::PlacementRequest& request);
// "train", "job a's train", "a placement": how messages call it.
std::string NameOf(const v1::PlacementRequest& request);

// `reserved[node]`: not to be touched now, as it is kept for somebody else; may be null.
[[nodiscard]] absl::StatusOr<Placement> Place(const ClusterView& view, const v1::PlacementRequest& request,
                                              const std::vector<bool>* reserved = nullptr);

}  // namespace manta::controller::scheduler
