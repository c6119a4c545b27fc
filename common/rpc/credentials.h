// What a server and a channel of a job are secured with: connections over loopback only, and the job token on every
// call. The one place that uses grpc::experimental for credentials. Thread-safe.
#pragma once

#include <memory>
#include <string>

#include "grpcpp/security/credentials.h"
#include "grpcpp/security/server_credentials.h"

namespace manta::rpc {

// Every call must carry `token`; one that does not is answered UNAUTHENTICATED before it reaches a handler.
std::shared_ptr<grpc::ServerCredentials> LoopbackServerCredentials(const std::string& token);
std::shared_ptr<grpc::ChannelCredentials> LoopbackChannelCredentials(const std::string& token);

// "127.x.y.z:port", "[::1]:port", "localhost:port".
bool IsLoopback(const std::string& address);

// gRPC writes what goes wrong to stderr; Manta reports it as a status, once. Keeps gRPC silent unless GRPC_VERBOSITY is
// set.
void SilenceGrpcLog();

}  // namespace manta::rpc
