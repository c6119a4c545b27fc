#include "common/rpc/channel.h"

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/rpc/credentials.h"
#include "common/rpc/keys.h"
#include "common/rpc/server.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/support/channel_arguments.h"

namespace manta::rpc {

absl::StatusOr<std::shared_ptr<grpc::Channel>> OpenChannel(const std::string& address, const Identity& identity) {
  SilenceGrpcLog();
  if (!identity.tls.has_value() && !IsLoopback(address)) {
    return absl::FailedPreconditionError(
        absl::StrCat("refusing to send the job token to ", address,
                     ": without TLS credentials (MANTA_TLS_DIR) only loopback addresses are reached"));
  }
  MANTA_ASSIGN_OR_RETURN(const Keys keys, Keys::Parse(identity.token));
  std::shared_ptr<grpc::ChannelCredentials> credentials = LoopbackChannel();
  if (identity.tls.has_value()) {
    MANTA_ASSIGN_OR_RETURN(credentials, TlsChannel(*identity.tls, identity.servers));
  }
  credentials = WithToken(std::move(credentials), keys.token(), /*loopback=*/!identity.tls.has_value());
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kMaxReceiveBytes);
  arguments.SetMaxSendMessageSize(-1);
  arguments.SetInt(GRPC_ARG_MAX_METADATA_SIZE, kMaxMetadataBytes);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  // A port may be taken again by another process: no connection or back-off is shared with an earlier channel to it.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 50);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 10000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 10000);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);  // at most once: only callers know what may be sent again
  return grpc::CreateCustomChannel(address, credentials, arguments);
}

absl::StatusOr<std::shared_ptr<grpc::Channel>> OpenChannel(const std::string& address, const std::string& token) {
  const Identity identity{.token = token};
  return OpenChannel(address, identity);
}

}  // namespace manta::rpc
