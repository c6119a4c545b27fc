// Server: what a process serves its gRPC services with. It listens on loopback (on a port that the system chooses,
// unless told otherwise), asks every call for the job token, and bounds what it receives at 1 GiB a message.
//
// Services are generated CallbackServices. Their handlers run on gRPC's threads and must not block: they post to an
// EventLoop or to an actor::Lane and finish their reactor from there. The services must outlive the server, and
// whatever holds unfinished reactors must finish them once Shutdown has begun (cancelled calls see OnCancel).
//
// Thread-safe.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "grpcpp/server.h"
#include "grpcpp/server_builder.h"

namespace manta::rpc {

inline constexpr int kMaxReceiveBytes = 1 << 30;
inline constexpr int kMaxMetadataBytes = 64 << 10;

struct ServerOptions {
  std::string listen = "127.0.0.1:0";
  std::string token;  // see token.h
  std::function<void(grpc::ServerBuilder&)> configure;  // for services with completion queues of their own
};

class Server {
 public:
  // FAILED_PRECONDITION for an address beyond loopback (there are no credentials for it yet) and for an empty token;
  // UNAVAILABLE where the address cannot be bound.
  [[nodiscard]] static absl::StatusOr<std::unique_ptr<Server>> Start(const ServerOptions& options,
                                                                     const std::vector<grpc::Service*>& services);
  ~Server();  // Shutdown(0)

  const std::string& address() const { return address_; }  // "127.0.0.1:41234"

  // Takes no new calls, waits up to `grace` for those that run, then cancels them; returns when all handlers are done.
  void Shutdown(absl::Duration grace);

 private:
  Server() = default;
  std::string address_;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace manta::rpc
