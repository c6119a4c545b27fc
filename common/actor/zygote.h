// The worker's half of pre-forked starts. Worker::Create calls MaybeServeAsZygote before anything else; in a process
// that a shim has started as a zygote (MANTA_ZYGOTE_FD) it does not return there: it forks a child for every start that
// the shim asks for, and returns in each child, which then is a worker like one that was executed afresh: its own argv,
// environment and standard streams, its shim as parent, SIGKILL at the shim's end.
//
// A process that has started threads or gRPC before it came here cannot be forked: it says so to the shim, which starts
// workers cold instead. What main has done before Worker::Create is shared by all children.
//
// Packets, shim to zygote: a serialised v1::StartActor with three descriptors (stdout, stderr, the shim link). Zygote
// to shim: "ready", or "refused WHY"; for each start, in order, "forked ACTOR EPOCH PID" or "failed ACTOR EPOCH WHY".
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace manta::actor {

constexpr char kZygoteFdVariable[] = "MANTA_ZYGOTE_FD";
// Of a start's environment: the folder that the process works in, executed or forked; the agent's where there is none.
constexpr char kWorkingDirVariable[] = "MANTA_WORKING_DIR";

// The arguments (argv[0] first) of the worker that this process has become; none where it is no zygote's child.
std::optional<std::vector<std::string>> MaybeServeAsZygote();

}  // namespace manta::actor
