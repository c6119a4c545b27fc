// Channels to a job's servers: they carry a token on every call, go around any HTTP proxy, and notice a dead peer by
// keepalive. Thread-safe; a channel is shared by all stubs to one address.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "common/rpc/tls.h"
#include "grpcpp/channel.h"

namespace manta::rpc {

// As what a process calls others.
struct Identity {
  std::string token;                           // a line of keys.h; its first word is shown
  std::optional<TlsFiles> tls = ProcessTls();  // none: loopback only
  RoleSet servers = RoleBit(v1::ROLE_ADMIN) | RoleBit(v1::ROLE_NODE) | RoleBit(v1::ROLE_WORKER);  // whom it believes
};

// FAILED_PRECONDITION for an address beyond loopback without certificates. No connection is made yet: the first call
// makes it.
[[nodiscard]] absl::StatusOr<std::shared_ptr<grpc::Channel>> OpenChannel(const std::string& address,
                                                                         const Identity& identity);
[[nodiscard]] absl::StatusOr<std::shared_ptr<grpc::Channel>> OpenChannel(const std::string& address,
                                                                         const std::string& token);

}  // namespace manta::rpc
