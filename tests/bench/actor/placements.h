// Placement groups made and removed through the head's ClusterService, with many of them under way. An answer means
// that the head's rows are on the disk.
#pragma once

#include "tests/testing/launched_cluster.h"

namespace manta::bench {

// Pairs of CreatePlacement and RemovePlacement, `window` of them under way.
double PlacementsPerSecond(const testing::LaunchedCluster& cluster, int window, double seconds);

}  // namespace manta::bench
