// What a call costs between two threads of one process over loopback: the floor under every call of a run.
#include <benchmark/benchmark.h>

#include <string>

#include "common/rpc/call.h"
#include "common/rpc/channel.h"
#include "common/rpc/server.h"
#include "common/rpc/stream_writer.h"
#include "manta/v1/actor.grpc.pb.h"

namespace manta::rpc {
namespace {

using Async = AsyncOf<v1::ActorService>;

class Echo : public v1::ActorService::CallbackService {
 public:
  grpc::ServerUnaryReactor* Stop(grpc::CallbackServerContext* context, const v1::StopRequest*,
                                 v1::StopReply*) override {
    auto* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }
  grpc::ServerWriteReactor<v1::ActorBeat>* Watch(grpc::CallbackServerContext*, const v1::WatchRequest*) override {
    auto writer = StreamWriter<v1::ActorBeat>::Create(/*max_queued=*/1000);
    for (int i = 0; i < 1000; ++i) writer->Write({});
    writer->Finish(absl::OkStatus());
    return writer->reactor();
  }
};

struct Bench {
  EventLoop loop;
  Echo echo;
  std::unique_ptr<Server> server = Server::Start({.token = "bench"}, {&echo}).value();
  std::unique_ptr<v1::ActorService::Stub> stub =
      v1::ActorService::NewStub(OpenChannel(server->address(), "bench").value());
};

// A request of range(0) bytes, answered at once.
void BM_UnaryCall(benchmark::State& state) {
  Bench bench;
  v1::StopRequest request;
  request.set_reason(std::string(state.range(0), 'x'));
  for (auto _ : state) {
    const auto reply = RunToCompletion(
        bench.loop, Call(bench.loop, bench.stub->async(), &Async::Stop, request, {.deadline = absl::Seconds(60)}));
    if (!reply.ok()) state.SkipWithError(std::string(reply.status().message()).c_str());
  }
  state.SetBytesProcessed(state.iterations() * state.range(0));
}
BENCHMARK(BM_UnaryCall)->Arg(0)->Arg(1 << 20)->Arg(64 << 20)->UseRealTime();

// range(0) calls in flight together: time a call.
void BM_ConcurrentCalls(benchmark::State& state) {
  Bench bench;
  for (auto _ : state) {
    std::vector<Task<absl::StatusOr<v1::StopReply>>> calls;
    for (int i = 0; i < state.range(0); ++i) {
      calls.push_back(Call(bench.loop, bench.stub->async(), &Async::Stop, {}, {.deadline = absl::Seconds(60)}));
    }
    const auto replies = RunToCompletion(bench.loop, WhenAll(std::move(calls)));
    if (!FirstError(replies).ok()) state.SkipWithError("a call failed");
  }
  state.SetItemsProcessed(state.iterations() * state.range(0));
}
BENCHMARK(BM_ConcurrentCalls)->Arg(100)->UseRealTime();

Task<int> ReadAll(Bench* bench) {
  auto stream = OpenStream(bench->loop, bench->stub->async(), &Async::Watch, {}, {.deadline = absl::Seconds(60)});
  for (int n = 0;; ++n) {
    const auto message = co_await stream.Next();
    if (!message.ok() || !message->has_value()) co_return n;
  }
}
void BM_StreamOf1000(benchmark::State& state) {
  Bench bench;
  for (auto _ : state) {
    if (RunToCompletion(bench.loop, ReadAll(&bench)) != 1000) state.SkipWithError("messages are missing");
  }
  state.SetItemsProcessed(state.iterations() * 1000);
}
BENCHMARK(BM_StreamOf1000)->UseRealTime();

}  // namespace
}  // namespace manta::rpc
