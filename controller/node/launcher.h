// The launcher: a process with one thread, forked from the agent before it has any other, that forks the shims.
//
// Executing a program that links gRPC costs its loading each time; forking one that is loaded costs a millisecond. The
// agent itself has threads soon, and a fork of a process with threads may only execute. The launcher is the shims'
// parent: it reaps them, says how they ended, and, as the subreaper, ends what a killed shim's workers leave behind. It
// ends when its agent does; the shims live on (shim.h).
//
// Packets from the agent: "ID GRACE_MS NAME" with the shim's end of its socket. To the agent: "started ID PID" with a
// pidfd, "failed ID WHY", "ended ID HOW".
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace manta::node {

// Forks a launcher. The calling process must have one thread. Gives the agent's end of the socket.
// `argc`, `argv`: main's, whose memory the titles of launcher and shims are written over (ps shows them).
[[nodiscard]] absl::StatusOr<int> ForkLauncher(const std::string& state_dir, int argc, char** argv);
// Executes a launcher instead: for an agent that has threads and whose launcher was killed.
[[nodiscard]] absl::StatusOr<int> ExecuteLauncher(const std::string& state_dir);

// `manta-node --launcher STATE_DIR`: the socket is descriptor 3. Returns the exit code.
int LauncherMain(const std::string& state_dir, int argc, char** argv);

}  // namespace manta::node
