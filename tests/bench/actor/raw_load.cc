// gRPC by itself under more than one call at a time.
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <memory>
#include <thread>
#include <vector>

#include "absl/synchronization/blocking_counter.h"
#include "absl/time/clock.h"
#include "common/rpc/channel.h"
#include "grpcpp/client_context.h"
#include "manta/v1/call.grpc.pb.h"
#include "tests/bench/actor/raw.h"

namespace manta::bench {
namespace {

std::unique_ptr<v1::CallService::Stub> Stub(const std::string& address, const std::string& token) {
  return v1::CallService::NewStub(rpc::OpenChannel(address, token).value());
}

// One unary call after another.
struct Chain {
  void Next() {
    if (stop->load(std::memory_order_relaxed)) {
      done->DecrementCount();
      return;
    }
    context = std::make_unique<grpc::ClientContext>();
    context->set_deadline(absl::ToChronoTime(absl::Now() + absl::Seconds(30)));
    stub->async()->Invoke(context.get(), &request, &reply, [this](const grpc::Status& status) {
      if (status.ok()) calls->fetch_add(1, std::memory_order_relaxed);
      Next();
    });
  }
  v1::CallService::Stub* stub = nullptr;
  std::atomic<bool>* stop = nullptr;
  std::atomic<int64_t>* calls = nullptr;
  absl::BlockingCounter* done = nullptr;
  std::unique_ptr<grpc::ClientContext> context;
  v1::InvokeRequest request;
  v1::InvokeReply reply;
};

}  // namespace

double RawUnaryPipelinedPerSecond(const std::string& address, const std::string& token, int window, double seconds) {
  const auto stub = Stub(address, token);
  std::atomic<bool> stop{false};
  std::atomic<int64_t> calls{0};
  absl::BlockingCounter done(window);
  std::vector<std::unique_ptr<Chain>> chains;
  for (int i = 0; i < window; ++i) {
    auto chain = std::make_unique<Chain>();
    chain->stub = stub.get();
    chain->stop = &stop;
    chain->calls = &calls;
    chain->done = &done;
    chain->request.mutable_call()->set_payload("hello");
    chains.push_back(std::move(chain));
  }
  for (const auto& chain : chains) chain->Next();
  absl::SleepFor(absl::Milliseconds(300));
  const int64_t before = calls.load();
  const absl::Time begin = absl::Now();
  absl::SleepFor(absl::Seconds(seconds));
  const double rate = static_cast<double>(calls.load() - before) / absl::ToDoubleSeconds(absl::Now() - begin);
  stop = true;
  done.Wait();
  return rate;
}

double RawStreamsPipelinedPerSecond(const std::vector<std::string>& addresses, const std::string& token,
                                    double seconds) {
  std::vector<std::thread> threads;
  std::vector<double> rates(addresses.size());
  for (size_t i = 0; i < addresses.size(); ++i) {
    threads.emplace_back([&, i] { rates[i] = RawStreamPipelinedPerSecond(addresses[i], token, seconds); });
  }
  for (std::thread& thread : threads) thread.join();
  double sum = 0;
  for (const double rate : rates) sum += rate;
  return sum;
}

double RawArgumentGbPerSecond(const std::string& address, const std::string& token, size_t bytes, double seconds) {
  constexpr size_t kChunk = size_t{1} << 20;
  const auto stub = Stub(address, token);
  const std::string argument(bytes, 'x');
  absl::Time begin;
  for (int n = -1;; ++n) {  // the first one touches the server's buffer
    if (n == 0) begin = absl::Now();
    if (n > 1 && absl::Now() - begin > absl::Seconds(seconds)) {
      return n * static_cast<double>(bytes) / absl::ToDoubleSeconds(absl::Now() - begin) / 1e9;
    }
    grpc::ClientContext context;
    v1::TransferReply reply;
    v1::TransferChunk chunk;
    chunk.set_total(bytes);
    const auto stream = stub->Transfer(&context, &reply);
    for (size_t at = 0; at < bytes; at += kChunk) {
      chunk.set_offset(at);
      chunk.mutable_data()->assign(argument, at, std::min(kChunk, bytes - at));
      if (!stream->Write(chunk)) break;
    }
    stream->WritesDone();
    if (!stream->Finish().ok() || reply.received() != bytes) return 0;
  }
}

bool RawCallOnce(const std::string& address, const std::string& token) {
  const auto stub = Stub(address, token);
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + absl::Seconds(30)));
  v1::InvokeRequest request;
  request.mutable_call()->set_payload("hello");
  v1::InvokeReply reply;
  return stub->Invoke(&context, request, &reply).ok();
}

}  // namespace manta::bench
