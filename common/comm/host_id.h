// HostId: equal in two processes exactly if they can share memory through /proc (same boot, same PID namespace).
#pragma once

#include <string>

namespace manta::comm {

// "<boot id>:<PID namespace>". Thread-safe; computed once.
const std::string& HostId();

}  // namespace manta::comm
