// Sockets that listen. Thread-safe.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace manta::rpc {

// Binds to "HOST:PORT" or "[v6]:PORT" (port 0: any) and listens; the socket is non-blocking and close-on-exec, and what
// it accepts has TCP_NODELAY. INVALID_ARGUMENT for another form, UNAVAILABLE where it cannot be bound.
[[nodiscard]] absl::StatusOr<int> ListenOn(const std::string& address);
int PortOf(int socket);  // 0: none

}  // namespace manta::rpc
