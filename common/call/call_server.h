// CallServer: serves CallService for one actor: its methods, each on a lane, over a completion queue that the server's
// own threads poll (core/crew.h); gRPC's callback threads, which the process's other services use, are not involved.
//
//   CallServer server({.actor_id = "counter-0", .epoch = 1});
//   server.AddLane("work", {.concurrency = 2, .capacity = 100});
//   server.AddMethod("add", {.lane = "work"}, [](CallContext& context, std::string* reply) { ...; return status; });
//   auto rpc_server = rpc::Server::Start({.token = token, .configure = server.Configure()}, {server.service()});
//   server.Start();      // from here on it answers
//   server.Stop(grace);  // before the rpc::Server's Shutdown
//
// Handlers run on the crew's threads, one at a time a lane unless its concurrency is larger; those of lane "control" on
// the thread that waits for everything else: they must be short. Handlers may block on other lanes, throw nothing, and
// must outlive Stop. Methods and lanes are added before Start. The rest is thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/call/core/call_context.h"
#include "common/call/core/lanes.h"
#include "grpcpp/impl/codegen/service_type.h"

namespace grpc {
class ServerBuilder;
}

namespace manta::call {

struct MethodOptions {
  std::string lane = "work";  // made with LaneOptions' defaults where it is not there
  bool idempotent = false;    // only such methods are ever sent again by the library
  bool streaming = false;     // its handler writes items
};

// Writes the reply's bytes, or returns an error. Called by several threads at a time where its lane's concurrency is
// larger than one.
using Handler = std::function<absl::Status(CallContext& context, std::string* reply)>;

class CallServer {
 public:
  struct Options {
    std::string actor_id;
    uint64_t epoch = 0;
    uint32_t window = 4096;  // calls of one session that are under way
    bool fencing = true;
  };
  explicit CallServer(Options options);
  ~CallServer();

  void AddLane(const std::string& name, LaneOptions options);
  void AddMethod(const std::string& name, MethodOptions options, Handler handler);

  std::function<void(grpc::ServerBuilder&)> Configure();
  grpc::Service* service();
  void Start();
  // Refuses new calls, waits up to `grace` for those that were admitted, cancels what is left, and ends every session.
  // Blocks; not from a handler.
  void Stop(absl::Duration grace, const std::string& why);
  // After the rpc::Server's Shutdown: ends the threads.
  void Join();

  std::vector<v1::MethodInfo> methods() const;
  void RaiseFence(const std::string& group, uint64_t min_epoch);

  struct Stats {
    uint64_t queued = 0, running = 0, completed = 0, refused = 0, sessions = 0;
    int threads = 0;
  };
  Stats stats() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace manta::call
