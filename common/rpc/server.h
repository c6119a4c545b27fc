// Server: what a process serves its gRPC services with. It listens on loopback (on a port that the system chooses,
// unless told otherwise), or beyond it with certificates (tls.h), and lets in who may come in:
//
//   connections   a gate looks at their first bytes and bounds their number (gate.h)
//   calls         each shows a token (keys.h) of a role that the proto's access option names for the method; a method
//                 without the option is served to nobody, and the server does not start (method_policy.h)
//   messages      of `max_receive_bytes` at most
//
// What is refused is counted and logged (refusals.h), calls that the proto marks with `audit` are written down
// (audit_log.h).
//
// Services are generated CallbackServices. Their handlers run on gRPC's threads and must not block: they post to an
// EventLoop or to an actor::Lane and finish their reactor from there. The services must outlive the server, and
// whatever holds unfinished reactors must finish them once Shutdown has begun (cancelled calls see OnCancel).
//
// Thread-safe.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/rpc/tls.h"
#include "grpcpp/server.h"
#include "grpcpp/server_builder.h"

namespace manta::rpc {

class CallGuard;
class Gate;

inline constexpr int kMaxReceiveBytes = 1 << 30;
inline constexpr int kMaxMetadataBytes = 64 << 10;
// At a time. Further calls wait on the caller's side, control calls too: so it is far above what lanes take.
inline constexpr int kMaxCallsPerConnection = 1 << 16;

struct ServerOptions {
  std::string listen = "127.0.0.1:0";
  std::string token;  // a line of keys.h: one token for all, or this role's token and everyone's digests
  std::function<void(grpc::ServerBuilder&)> configure = nullptr;  // for services with completion queues of their own
  std::optional<TlsFiles> tls = ProcessTls();
  std::filesystem::path audit_log = {};  // of the process; empty: all goes to its log
  int max_receive_bytes = kMaxReceiveBytes;
  int max_connections = 4096;
  absl::Duration handshake_timeout = absl::Seconds(5);  // for the first bytes, then for the rest of the handshake
};

class Server {
 public:
  // FAILED_PRECONDITION for an address beyond loopback without certificates, for an empty token, and for a service of
  // which the proto does not say who may call it; UNAVAILABLE where the address cannot be bound.
  [[nodiscard]] static absl::StatusOr<std::unique_ptr<Server>> Start(const ServerOptions& options,
                                                                     const std::vector<grpc::Service*>& services);
  ~Server();  // Shutdown(0)

  const std::string& address() const { return address_; }  // "127.0.0.1:41234"
  int open_connections() const;

  // Takes no new calls, waits up to `grace` for those that run, then cancels them; returns when all handlers are done.
  void Shutdown(absl::Duration grace);

 private:
  Server();
  std::string address_;
  std::shared_ptr<CallGuard> guard_;
  std::unique_ptr<Gate> gate_;
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> acceptor_;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace manta::rpc
