// The shim: the parent of one worker (`manta-node --shim`).
//
// It stands between a worker and the node agent so that the worker's life hangs on neither the agent's threads nor its
// luck. It starts the worker from its own main and only thread with PDEATHSIG, so a shim that is killed takes its
// worker with it; it writes what the worker prints to the log and keeps the last lines; it learns of the worker's end
// through a pidfd, tells the agent at once, and leaves the same in a record file. It outlives the agent: when the
// agent's end of the socket closes, it gives the worker `agent_grace` and then ends it (in a run that stops with its
// controller the grace is zero). What the worker has left running is killed after it: its process group, and every
// orphan that comes to the shim.
//
// The socket is descriptor 3, a SOCK_SEQPACKET pair. First in: a NodeCommand with `start`; later `stop`. Out: a
// NodeEvent with `started` or `start_failed`, and `exited`.
#pragma once

#include <string>
#include <vector>

namespace manta::node {

// Arguments after --shim: ACTOR_ID --record FILE --agent-grace-ms N. Returns the process's exit code.
int ShimMain(const std::vector<std::string>& args);

}  // namespace manta::node
