// What this process and its machine are called. Thread-safe.
#pragma once

#include <cstdint>
#include <string>

#include "absl/time/time.h"

namespace manta {

// Equal in two processes exactly if they can share memory through /proc/PID/fd: they run under one boot of one kernel,
// give processes the same numbers (PID namespace), and may look at each other's descriptors (user namespace); a process
// whose /proc is another namespace's shares with nobody. It is not told of two users, nor of a machine that was copied
// while it ran: what is opened must be checked to be what was meant, and its failure be provided for.
const std::string& HostId();

namespace internal {
std::string FindHostId();  // anew, for tests
}

uint64_t ResidentBytes();

// What all threads of process `pid` have used of processors until now; zero where there is no such process.
absl::Duration CpuTimeOf(int pid);

// A descriptor that becomes readable when process `pid` has ended (close-on-exec; the caller closes it), or -1 where
// there is no such process.
int OpenPidFd(int pid);

}  // namespace manta
