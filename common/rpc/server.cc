#include "common/rpc/server.h"

#include "absl/strings/str_cat.h"
#include "common/rpc/credentials.h"
#include "grpc/impl/codegen/grpc_types.h"
#include "grpcpp/server_builder.h"

namespace manta::rpc {

absl::StatusOr<std::unique_ptr<Server>> Server::Start(const ServerOptions& options,
                                                      const std::vector<grpc::Service*>& services) {
  SilenceGrpcLog();
  if (options.token.empty()) return absl::FailedPreconditionError("refusing to serve without a job token");
  if (!IsLoopback(options.listen)) {
    return absl::FailedPreconditionError(absl::StrCat("refusing to listen on ", options.listen,
                                                      ": without TLS credentials only loopback addresses are served"));
  }
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort(options.listen, LoopbackServerCredentials(options.token), &port);
  for (grpc::Service* service : services) builder.RegisterService(service);
  if (options.configure) options.configure(builder);
  builder.SetMaxReceiveMessageSize(kMaxReceiveBytes);
  builder.SetMaxSendMessageSize(-1);
  builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, kMaxMetadataBytes);
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);  // two servers on one port would each get half the calls
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 1000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PING_STRIKES, 0);
  std::unique_ptr<Server> server(new Server());
  server->server_ = builder.BuildAndStart();
  if (server->server_ == nullptr || port == 0) {
    return absl::UnavailableError(absl::StrCat("cannot listen on ", options.listen, ": is the port in use?"));
  }
  server->address_ = absl::StrCat(options.listen.substr(0, options.listen.rfind(':')), ":", port);
  return server;
}

Server::~Server() {
  Shutdown(absl::ZeroDuration());
}

void Server::Shutdown(absl::Duration grace) {
  if (server_ == nullptr) return;
  server_->Shutdown(absl::ToChronoTime(absl::Now() + grace));
}

}  // namespace manta::rpc
