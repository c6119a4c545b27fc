// Which processes can share memory through /proc/PID/fd. Thread-safe.
#pragma once

#include <string>

namespace manta::call {

// Equal in two processes exactly if they run under one kernel and see each other's process ids alike.
const std::string& SharedMemoryHostId();

}  // namespace manta::call
