#include "common/rpc/server.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/rpc/audit_log.h"
#include "common/rpc/call_guard.h"
#include "common/rpc/credentials.h"
#include "common/rpc/gate.h"
#include "common/rpc/refusals.h"
#include "grpc/impl/codegen/grpc_types.h"
#include "grpcpp/impl/server_builder_option.h"
#include "grpcpp/impl/server_initializer.h"

namespace manta::rpc {
namespace {

constexpr absl::Duration kLogPatience = absl::Milliseconds(200);

// The names of what was registered: the only place where gRPC tells them.
class ServiceNames : public grpc::ServerBuilderOption {
 public:
  explicit ServiceNames(std::shared_ptr<std::vector<std::string>> names) : names_(std::move(names)) {}
  void UpdateArguments(grpc::ChannelArguments*) override {}
  void UpdatePlugins(std::vector<std::unique_ptr<grpc::ServerBuilderPlugin>>* plugins) override {
    class Plugin : public grpc::ServerBuilderPlugin {
     public:
      explicit Plugin(std::shared_ptr<std::vector<std::string>> names) : names_(std::move(names)) {}
      std::string name() override { return "service names"; }
      void InitServer(grpc::ServerInitializer*) override {}
      void Finish(grpc::ServerInitializer* initializer) override { *names_ = *initializer->GetServiceList(); }
      void ChangeArguments(const std::string&, void*) override {}

     private:
      const std::shared_ptr<std::vector<std::string>> names_;
    };
    plugins->push_back(std::make_unique<Plugin>(names_));
  }

 private:
  const std::shared_ptr<std::vector<std::string>> names_;
};

void SetLimits(grpc::ServerBuilder& builder, const ServerOptions& options) {
  builder.SetMaxReceiveMessageSize(options.max_receive_bytes);
  builder.SetMaxSendMessageSize(-1);
  builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, kMaxMetadataBytes);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kMaxCallsPerConnection);
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS,
                             static_cast<int>(absl::ToInt64Milliseconds(options.handshake_timeout)));
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 1000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PING_STRIKES, 0);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Server>> Server::Start(const ServerOptions& options,
                                                      const std::vector<grpc::Service*>& services) {
  SilenceGrpcLog();
  if (options.token.empty()) return absl::FailedPreconditionError("refusing to serve without a job token");
  MANTA_ASSIGN_OR_RETURN(Keys keys, Keys::Parse(options.token));
  if (!options.tls.has_value() && !IsLoopback(options.listen)) {
    return absl::FailedPreconditionError(
        absl::StrCat("refusing to listen on ", options.listen,
                     ": without TLS credentials (MANTA_TLS_DIR) only loopback addresses are served"));
  }
  std::shared_ptr<grpc::ServerCredentials> credentials = LoopbackServer();
  if (options.tls.has_value()) {
    MANTA_ASSIGN_OR_RETURN(credentials, TlsServer(*options.tls));
  }
  if (!options.audit_log.empty()) MANTA_RETURN_IF_ERROR(AuditLog::Process().SetFile(options.audit_log));

  std::unique_ptr<Server> server(new Server());
  MANTA_ASSIGN_OR_RETURN(server->gate_, Gate::Listen(options.listen, {.tls = options.tls.has_value(),
                                                                      .max_connections = options.max_connections,
                                                                      .first_bytes = options.handshake_timeout}));
  server->guard_ = std::make_shared<CallGuard>(std::move(keys), options.tls.has_value());
  credentials->SetAuthMetadataProcessor(server->guard_->Processor());

  grpc::ServerBuilder builder;
  server->acceptor_ = builder.experimental().AddExternalConnectionAcceptor(
      grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD, credentials);
  for (grpc::Service* service : services) builder.RegisterService(service);
  if (options.configure) options.configure(builder);
  SetLimits(builder, options);
  std::vector<std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>> interceptors;
  interceptors.push_back(server->guard_->Interceptors());
  builder.experimental().SetInterceptorCreators(std::move(interceptors));
  const auto names = std::make_shared<std::vector<std::string>>();
  builder.SetOption(std::make_unique<ServiceNames>(names));
  server->server_ = builder.BuildAndStart();
  if (server->server_ == nullptr) return absl::UnavailableError(absl::StrCat("cannot serve on ", options.listen));

  MANTA_ASSIGN_OR_RETURN(std::shared_ptr<MethodPolicy> policy, MethodPolicy::ForServices(*names));
  server->guard_->SetPolicy(std::move(policy));
  server->address_ = absl::StrCat(options.listen.substr(0, options.listen.rfind(':')), ":", server->gate_->port());
  server->gate_->Open(
      [acceptor = server->acceptor_.get()](int fd, int listener) {
        grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters connection;
        connection.listener_fd = listener;
        connection.fd = fd;
        acceptor->HandleNewConnection(&connection);
      },
      [guard = server->guard_.get()] {
        guard->Sweep(absl::Now());
        TellRefusals();
      });
  return server;
}

Server::Server() = default;

Server::~Server() {
  Shutdown(absl::ZeroDuration());
}

int Server::open_connections() const {
  return gate_->open_connections();
}

void Server::Shutdown(absl::Duration grace) {
  if (gate_ != nullptr) gate_->Close();
  if (server_ == nullptr) return;
  server_->Shutdown(absl::ToChronoTime(absl::Now() + grace));
  AuditLog::Process().Flush(kLogPatience);
}

}  // namespace manta::rpc
