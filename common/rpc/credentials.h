// What connections of a job are secured with: over loopback gRPC's local credentials (plain text, other peers are
// refused), beyond it mutual TLS (tls.h); over both each call carries a token. Thread-safe.
#pragma once

#include <memory>
#include <string>

#include "grpcpp/security/credentials.h"
#include "grpcpp/security/server_credentials.h"

namespace manta::rpc {

std::shared_ptr<grpc::ServerCredentials> LoopbackServer();
std::shared_ptr<grpc::ChannelCredentials> LoopbackChannel();

// `channel` with the token on every call. It travels in plain text over loopback's channel, and over no other.
std::shared_ptr<grpc::ChannelCredentials> WithToken(std::shared_ptr<grpc::ChannelCredentials> channel,
                                                    const std::string& token, bool loopback);

// "127.x.y.z:port", "[::1]:port", "localhost:port"; other names that begin like one of them are not.
bool IsLoopback(const std::string& address);

// gRPC writes what goes wrong to stderr; Manta reports it as a status, once. Keeps gRPC silent unless GRPC_VERBOSITY is
// set. TLS handshakes that fail show nowhere else: their lines are counted as refusals (refusals.h).
void SilenceGrpcLog();

}  // namespace manta::rpc
