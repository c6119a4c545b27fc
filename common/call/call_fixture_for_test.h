// A call server in this process, for tests: methods first, then Start.
#pragma once

#include <memory>
#include <string>

#include "common/call/call_client.h"
#include "common/call/call_server.h"
#include "common/rpc/server.h"

namespace manta::call {

struct TestActor {
  static constexpr char kToken[] = "0123456789abcdef0123456789abcdef";

  explicit TestActor(CallServer::Options options = {.actor_id = "a-0", .epoch = 1}) : server(std::move(options)) {}
  ~TestActor() { Stop(); }
  void Start() {
    rpc = rpc::Server::Start({.token = kToken, .configure = server.Configure()}, {server.service()}).value();
    server.Start();
  }
  void Stop() {
    if (rpc == nullptr) return;
    server.Stop(absl::Seconds(5), "the test ends");
    rpc->Shutdown(absl::ZeroDuration());
    server.Join();
    rpc = nullptr;
  }
  static std::unique_ptr<CallClient> Client() { return CallClient::Create({.token = kToken}).value(); }

  CallServer server;
  std::unique_ptr<rpc::Server> rpc;
};

}  // namespace manta::call
