// The shim: the parent of workers, between them and the node agent, so that a worker's life hangs on neither the
// agent's threads nor its luck.
//
// The launcher forks it. It starts a worker from its own main and only thread with PDEATHSIG, so a shim that is killed
// takes its workers with it; it writes what a worker prints to the log and keeps the last lines; it learns of a
// worker's end through a pidfd, tells the agent at once, and leaves the same in two files: RUN/actors/ACTOR.EPOCH.json
// for people, and STATE_DIR/exits for the next agent. What a worker has left running is killed after it: its process
// group, and every orphan that comes to the shim. It ends when its last worker has.
//
// It outlives the agent. When the agent's end of the socket closes, it waits `agent_grace` for another agent, which
// connects to STATE_DIR/shims/NAME.sock, shows the agent's key, and gets a snapshot of every worker; then it ends them.
// A lease that it was given and that runs out ends them too, at once (SIGKILL): somebody else may be running in their
// place. Leases are of the shim's own clock: one that has run out is not revived by an order that arrives after that.
//
// Agent to shim: v1::ShimOrder; shim to agent: v1::ShimReport. Worker to shim, by MANTA_SHIM_FD: v1::WorkerReport, and
// back v1::WorkerOrder.
#pragma once

#include <string>

#include "absl/time/time.h"

namespace manta::node {

struct ShimConfig {
  int agent_fd = -1;
  std::string name;       // of its socket
  std::string state_dir;  // empty: no agent can take it over
  absl::Duration agent_grace = absl::ZeroDuration();
};

// Until its last worker has ended. Returns the process's exit code.
int RunShim(const ShimConfig& config);

}  // namespace manta::node
