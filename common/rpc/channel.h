// Channels to a job's servers: they carry the job token on every call, go around any HTTP proxy, and notice a dead peer
// by keepalive. Thread-safe; a channel is shared by all stubs to one address.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "grpcpp/channel.h"

namespace manta::rpc {

// FAILED_PRECONDITION for an address beyond loopback. No connection is made yet: the first call makes it.
[[nodiscard]] absl::StatusOr<std::shared_ptr<grpc::Channel>> OpenChannel(const std::string& address,
                                                                         const std::string& token);

}  // namespace manta::rpc
