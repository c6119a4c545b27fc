// Why a request can never be placed on the nodes that there are, in words. Thread-safe.
#pragma once

#include <string>

#include "controller/scheduler/cluster_view.h"
#include "manta/v1/cluster.pb.h"

namespace manta::controller::scheduler {

// Not avoided, and with the labels that are asked for.
bool Eligible(const NodeView& node, const v1::PlacementRequest& request);

// "train needs 16 GPUs (16 ranks of 1), 8 registered; 3 nodes: label zone=a missing; 1 node drained; node-3 absent".
std::string Missing(const ClusterView& view, const v1::PlacementRequest& request);

}  // namespace manta::controller::scheduler
