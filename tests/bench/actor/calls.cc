#include "tests/bench/actor/calls.h"

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <thread>

#include "common/call/call_client.h"
#include "common/call/call_server.h"
#include "common/rpc/server.h"

namespace manta::bench {
namespace {

using Clock = std::chrono::steady_clock;

double Since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// One call after another: each reply starts the next call, until the time is over.
struct Chain final : call::CallSink {
  void OnDone(const absl::Status& status, v1::Reply& reply) override {
    if (!status.ok() || reply.payload() != "hello") {
      std::fprintf(stderr, "a call failed: %s\n", std::string(status.message()).c_str());
      std::exit(1);
    }
    done->fetch_add(1, std::memory_order_relaxed);
    Next();
  }
  void Next() {
    if (stop->load(std::memory_order_relaxed)) {
      if (left->fetch_sub(1) == 1) notify();
      return;
    }
    const call::CallSpec spec{.method = method, .payload = "hello", .deadline = absl::Seconds(10)};
    if (!peer->Start(spec, std::shared_ptr<call::CallSink>(std::shared_ptr<void>(), this)).ok()) std::abort();
  }
  call::Peer* peer = nullptr;
  uint32_t method = 0;
  std::atomic<int64_t>* done = nullptr;
  std::atomic<bool>* stop = nullptr;
  std::atomic<int>* left = nullptr;
  std::function<void()> notify;
};

}  // namespace

int ServeEcho(const std::string& token) {
  call::CallServer server({.actor_id = "echo-0", .epoch = 1});
  server.AddLane("work", {.concurrency = 1, .capacity = 4096});
  server.AddMethod("echo", {}, [](call::CallContext& context, std::string* reply) {
    reply->assign(context.payload());
    return absl::OkStatus();
  });
  // Looks at both ends of what came.
  server.AddMethod("size", {}, [](call::CallContext& context, std::string* reply) {
    const std::string_view bytes = context.payload();
    if (bytes.empty() || bytes.front() != 'x' || bytes.back() != 'x') return absl::DataLossError("other bytes came");
    *reply = std::to_string(bytes.size());
    return absl::OkStatus();
  });
  auto rpc_server = rpc::Server::Start({.token = token, .configure = server.Configure()}, {server.service()}).value();
  server.Start();
  std::printf("listening %s\n", rpc_server->address().c_str());
  std::fflush(stdout);
  pause();
  return 0;
}

double CallsPerSecond(const std::string& address, const std::string& token, double seconds) {
  auto client = call::CallClient::Create({.token = token}).value();
  auto peer = client->Connect(address, "echo-0", 1).value();
  int n = 0;
  auto start = Clock::now();
  for (;; ++n) {
    if (n == 200) start = Clock::now();
    if (n > 200 && n % 64 == 0 && Since(start) > seconds) break;
    auto reply = peer->CallBlocking("echo", "hello", {.deadline = absl::Seconds(10)});
    if (!reply.ok() || *reply != "hello") {
      std::fprintf(stderr, "%s\n", std::string(reply.status().message()).c_str());
      return 0;
    }
  }
  return (n - 200) / Since(start);
}

double PipelinedCallsPerSecond(const std::vector<std::string>& addresses, const std::string& token, int window,
                               double seconds) {
  auto client = call::CallClient::Create({.token = token}).value();
  std::vector<std::shared_ptr<call::Peer>> peers;
  for (const std::string& address : addresses) {
    peers.push_back(client->Connect(address, "echo-0", 1).value());
    if (!peers.back()->WaitOpen(absl::Seconds(10)).ok()) return 0;
  }
  std::atomic<int64_t> done{0};
  std::atomic<bool> stop{false};
  std::atomic<int> left{static_cast<int>(peers.size()) * window};
  std::vector<std::unique_ptr<Chain>> chains;
  double rate = 0;
  client->RunUntil([&](std::function<void()> notify) {
    for (const auto& peer : peers) {
      for (int i = 0; i < window; ++i) {
        auto chain = std::make_unique<Chain>();
        chain->peer = peer.get();
        chain->method = peer->session().FindMethod("echo").value();
        chain->done = &done;
        chain->stop = &stop;
        chain->left = &left;
        chain->notify = notify;
        chains.push_back(std::move(chain));
      }
    }
    std::thread([&] {
      for (const auto& chain : chains) chain->Next();
      absl::SleepFor(absl::Milliseconds(200));
      const int64_t before = done.load();
      const auto start = Clock::now();
      absl::SleepFor(absl::Seconds(seconds));
      rate = (done.load() - before) / Since(start);
      stop = true;
    }).detach();
  });
  return rate;
}

double ArgumentGbPerSecond(const std::string& address, const std::string& token, size_t bytes, bool shared_memory,
                           double seconds) {
  auto client = call::CallClient::Create({.token = token, .shared_memory = shared_memory}).value();
  auto peer = client->Connect(address, "echo-0", 1).value();
  const std::string argument(bytes, 'x');
  const std::string expected = std::to_string(bytes);
  int n = -2;  // buffers are made and touched
  auto start = Clock::now();
  for (;; ++n) {
    if (n == 0) start = Clock::now();
    if (n > 2 && Since(start) > seconds) break;
    auto reply = peer->CallBlocking("size", argument, {.deadline = absl::Seconds(60)});
    if (!reply.ok() || *reply != expected) {
      std::fprintf(stderr, "%s\n", std::string(reply.status().message()).c_str());
      return 0;
    }
  }
  return n * static_cast<double>(bytes) / Since(start) / 1e9;
}

}  // namespace manta::bench
