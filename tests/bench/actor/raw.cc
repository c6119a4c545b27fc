#include "tests/bench/actor/raw.h"

#include <chrono>
#include <cstdio>
#include <cstring>
#include <thread>

#include "common/rpc/call_guard.h"
#include "common/rpc/channel.h"
#include "common/rpc/credentials.h"
#include "grpcpp/server_builder.h"
#include "manta/v1/call.grpc.pb.h"

namespace manta::bench {
namespace {

using Clock = std::chrono::steady_clock;

double Since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

class Echo final : public v1::CallService::Service {
  grpc::Status Open(grpc::ServerContext*, grpc::ServerReaderWriter<v1::ReplyBatch, v1::CallBatch>* stream) override {
    v1::CallBatch in;
    v1::ReplyBatch out;
    v1::Reply* reply = out.add_replies();
    while (stream->Read(&in)) {
      reply->set_seq(in.calls(0).seq());
      reply->set_payload(in.calls(0).payload());
      if (!stream->Write(out)) break;
    }
    return grpc::Status::OK;
  }
  grpc::Status Invoke(grpc::ServerContext*, const v1::InvokeRequest* request, v1::InvokeReply* reply) override {
    reply->mutable_reply()->set_payload(request->call().payload());
    return grpc::Status::OK;
  }
  grpc::Status Transfer(grpc::ServerContext*, grpc::ServerReader<v1::TransferChunk>* stream,
                        v1::TransferReply* reply) override {
    static std::string target;  // of the one caller that there is
    v1::TransferChunk chunk;
    while (stream->Read(&chunk)) {
      if (target.size() < chunk.total()) target.resize(chunk.total());
      if (chunk.offset() + chunk.data().size() > target.size()) break;
      std::memcpy(target.data() + chunk.offset(), chunk.data().data(), chunk.data().size());
      reply->set_received(chunk.offset() + chunk.data().size());
    }
    return grpc::Status::OK;
  }
};

}  // namespace

int ServeRaw(const std::string& token) {
  grpc::ServerBuilder builder;
  int port = 0;
  // The same look at the token as ours; the gate and the interceptors are not in its way.
  auto guard = std::make_shared<rpc::CallGuard>(rpc::Keys::Parse(token).value(), /*certificates=*/false);
  guard->SetPolicy(rpc::MethodPolicy::ForServices({v1::CallService::service_full_name()}).value());
  auto credentials = rpc::LoopbackServer();
  credentials->SetAuthMetadataProcessor(guard->Processor());
  builder.AddListeningPort("127.0.0.1:0", credentials, &port);
  Echo echo;
  builder.RegisterService(&echo);
  auto server = builder.BuildAndStart();
  std::printf("listening 127.0.0.1:%d\n", port);
  std::fflush(stdout);
  server->Wait();
  return 0;
}

double RawStreamPerSecond(const std::string& address, const std::string& token, double seconds) {
  auto stub = v1::CallService::NewStub(rpc::OpenChannel(address, token).value());
  grpc::ClientContext context;
  auto stream = stub->Open(&context);
  v1::CallBatch out;
  v1::Call* call = out.add_calls();
  call->set_payload("hello");
  v1::ReplyBatch in;
  int n = 0;
  auto start = Clock::now();
  for (;; ++n) {
    if (n == 200) start = Clock::now();
    if (n > 200 && n % 64 == 0 && Since(start) > seconds) break;
    call->set_seq(n + 1);
    call->set_deadline_ms(1000);
    if (!stream->Write(out) || !stream->Read(&in)) return 0;
  }
  const double rate = (n - 200) / Since(start);
  stream->WritesDone();
  (void)stream->Finish();
  return rate;
}

double RawStreamPipelinedPerSecond(const std::string& address, const std::string& token, double seconds) {
  auto stub = v1::CallService::NewStub(rpc::OpenChannel(address, token).value());
  grpc::ClientContext context;
  auto stream = stub->Open(&context);
  std::thread writer([&] {
    v1::CallBatch out;
    v1::Call* call = out.add_calls();
    call->set_payload("hello");
    const auto start = Clock::now();
    for (int n = 0; n % 64 != 0 || Since(start) < seconds; ++n) {
      call->set_seq(n + 1);
      if (!stream->Write(out)) break;
    }
    stream->WritesDone();
  });
  v1::ReplyBatch in;
  int n = 0;
  const auto start = Clock::now();
  while (stream->Read(&in)) ++n;
  const double rate = n / Since(start);
  writer.join();
  (void)stream->Finish();
  return rate;
}

double RawUnaryPerSecond(const std::string& address, const std::string& token, double seconds) {
  auto stub = v1::CallService::NewStub(rpc::OpenChannel(address, token).value());
  v1::InvokeRequest request;
  request.mutable_call()->set_payload("hello");
  v1::InvokeReply reply;
  int n = 0;
  auto start = Clock::now();
  for (;; ++n) {
    if (n == 100) start = Clock::now();
    if (n > 100 && n % 16 == 0 && Since(start) > seconds) break;
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(1));
    if (!stub->Invoke(&context, request, &reply).ok()) return 0;
  }
  return (n - 100) / Since(start);
}

}  // namespace manta::bench
