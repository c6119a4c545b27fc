// Actors started on a cluster and answering a call, and what the same number of gRPC servers costs without one.
#pragma once

#include <string>

#include "tests/testing/launched_cluster.h"

namespace manta::bench {

// What the cluster starts: an actor that echoes. Takes the whole of main.
int ServeActor(int argc, char** argv);
bool IsActor();  // whether an agent has started this process

// `count` groups of one actor are asked for at once, and each actor called as soon as it is ready; from the first
// request until the last reply.
double ActorsStartedPerSecond(const testing::LaunchedCluster& cluster, int count, bool prefork);
// `count` processes of this program with a bare gRPC server each, started at once and called once each.
double RawServersStartedPerSecond(const std::string& token, int count);

}  // namespace manta::bench
