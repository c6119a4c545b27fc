// kill() that cannot reach further than it is meant to. To the kernel a pid of 0 is the caller's group and -1 is every
// process there is: a lookup that found nothing must not become either. Thread-safe.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <cstdint>

namespace manta {

// Signals one process; false where there is none, or `pid` is not one that could be meant (below 2). Signal 0 only looks.
inline bool KillProcess(int64_t pid, int signal) {
  return pid > 1 && kill(static_cast<pid_t>(pid), signal) == 0;
}

// Signals the process group that `leader` leads; likewise.
inline bool KillGroup(int64_t leader, int signal) {
  return leader > 1 && kill(static_cast<pid_t>(-leader), signal) == 0;
}

}  // namespace manta
