// What this process and its machine are called. Thread-safe.
#pragma once

#include <cstdint>
#include <string>

namespace manta {

// Equal in two processes exactly if they can share memory through /dev/shm: the boot's identity and that mount's
// device.
std::string HostId();

uint64_t ResidentBytes();

// A descriptor that becomes readable when process `pid` has ended (close-on-exec; the caller closes it), or -1 where
// there is no such process.
int OpenPidFd(int pid);

}  // namespace manta
