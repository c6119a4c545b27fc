// A real server and real channels over loopback: tokens, calls, streams, deadlines and errors.
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <filesystem>
#include <thread>

#include "absl/strings/str_cat.h"
#include "common/rpc/call.h"
#include "common/rpc/channel.h"
#include "common/rpc/channel_cache.h"
#include "common/rpc/credentials.h"
#include "common/rpc/probe_server.h"
#include "common/rpc/server.h"
#include "common/rpc/status.h"
#include "common/rpc/stream_writer.h"
#include "common/rpc/token.h"
#include "gtest/gtest.h"
#include "manta/v1/actor.grpc.pb.h"

namespace manta::rpc {
namespace {

using Async = AsyncOf<v1::ActorService>;

class FakeActor : public v1::ActorService::CallbackService {
 public:
  grpc::ServerUnaryReactor* Ping(grpc::CallbackServerContext* context, const v1::PingRequest*,
                                 v1::PingReply* reply) override {
    reply->set_actor_id("fake-0");
    auto* reactor = context->DefaultReactor();
    reactor->Finish(ToGrpc(ping_status));
    return reactor;
  }
  grpc::ServerUnaryReactor* PeerLost(grpc::CallbackServerContext* context, const v1::PeerLostRequest*,
                                     v1::PeerLostReply*) override {
    class Hang : public grpc::ServerUnaryReactor {  // answers only when the client has gone
      void OnCancel() override { Finish(grpc::Status::CANCELLED); }
      void OnDone() override { delete this; }
    };
    (void)context;
    return new Hang();
  }
  grpc::ServerWriteReactor<v1::ActorBeat>* Watch(grpc::CallbackServerContext*, const v1::WatchRequest*) override {
    auto writer = StreamWriter<v1::ActorBeat>::Create(100000);
    for (int i = 0; i < beats; ++i) {
      v1::ActorBeat beat;
      beat.set_completed_calls(i);
      writer->Write(beat);
    }
    writer->OnCancel([this] { ++cancelled; });
    if (finish_watch) writer->Finish(watch_status);
    return writer->reactor();
  }

  absl::Status ping_status, watch_status;
  int beats = 3;
  bool finish_watch = true;
  std::atomic<int> cancelled = 0;
};

class RpcTest : public ::testing::Test {
 protected:
  void SetUp() override {
    server_ = Server::Start({.token = "a token of a job"}, {&actor_}).value();
    stub_ = Connect("a token of a job");
  }
  std::unique_ptr<v1::ActorService::Stub> Connect(const std::string& token) {
    return v1::ActorService::NewStub(OpenChannel(server_->address(), token).value());
  }
  absl::StatusOr<v1::PingReply> Ping(v1::ActorService::Stub& stub) {
    return RunToCompletion(loop_, Call(loop_, stub.async(), &Async::Ping, {}, {.deadline = absl::Seconds(5)}));
  }

  EventLoop loop_;
  FakeActor actor_;
  std::unique_ptr<Server> server_;
  std::unique_ptr<v1::ActorService::Stub> stub_;
};

TEST_F(RpcTest, ACallResumesOnTheLoop) {
  const auto reply = Ping(*stub_);
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(reply->actor_id(), "fake-0");
}

TEST_F(RpcTest, AWrongTokenIsRefusedOnEveryMethod) {
  auto stranger = Connect("a token of a jab");
  EXPECT_EQ(Ping(*stranger).status().code(), absl::StatusCode::kUnauthenticated);
  auto stream = OpenStream(loop_, stranger->async(), &Async::Watch, {}, {.deadline = absl::Seconds(5)});
  EXPECT_EQ(RunToCompletion(loop_, stream.Next()).status().code(), absl::StatusCode::kUnauthenticated);
  const absl::Status status = Ping(*stranger).status();
  EXPECT_EQ(GetErrorInfo(status).outcome(), v1::CALL_OUTCOME_NOT_STARTED);
}

TEST_F(RpcTest, ErrorsCarryTheirInfo) {
  v1::ErrorInfo info;
  info.set_origin(v1::ORIGIN_NODE_LOST);
  info.set_rank(3);
  for (int i = 0; i < 50; ++i) info.add_last_lines(std::string(4000, 'a' + i % 26));  // too much for a header
  actor_.ping_status = WithErrorInfo(absl::AbortedError("lost"), info);
  const absl::Status status = Ping(*stub_).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kAborted);
  EXPECT_EQ(status.message(), "lost");
  const v1::ErrorInfo back = GetErrorInfo(status);
  EXPECT_EQ(back.origin(), v1::ORIGIN_NODE_LOST);
  EXPECT_EQ(back.rank(), 3);
  ASSERT_GT(back.last_lines_size(), 2);
  EXPECT_EQ(back.last_lines(back.last_lines_size() - 1)[0], 'a' + 49 % 26);  // the newest stay
}

TEST_F(RpcTest, AStreamIsReadToItsEnd) {
  actor_.beats = 1000;
  auto read = [](EventLoop& loop, v1::ActorService::Stub* stub) -> Task<absl::StatusOr<int>> {
    auto stream = OpenStream(loop, stub->async(), &Async::Watch, {}, {.deadline = absl::Seconds(10)});
    int count = 0;
    while (true) {
      MANTA_CO_ASSIGN_OR_RETURN(auto beat, co_await stream.Next());
      if (!beat.has_value()) co_return count;
      if (beat->completed_calls() != static_cast<uint64_t>(count)) co_return absl::InternalError("out of order");
      ++count;
    }
  };
  EXPECT_EQ(RunToCompletion(loop_, read(loop_, stub_.get())).value(), 1000);
  actor_.watch_status = absl::DataLossError("broken");
  EXPECT_EQ(RunToCompletion(loop_, read(loop_, stub_.get())).status().message(), "broken");
}

TEST_F(RpcTest, DestroyingAStreamCancelsIt) {
  actor_.finish_watch = false;
  for (int reads = 0; reads < 5; ++reads) {  // one that is read from has surely reached the server
    auto stream = OpenStream(loop_, stub_->async(), &Async::Watch, {}, {.deadline = absl::Seconds(20)});
    for (int i = 0; i < std::min(reads, 3); ++i) ASSERT_TRUE(RunToCompletion(loop_, stream.Next()).ok());
    if (reads == 4) loop_.RunFor(absl::Milliseconds(20));
  }
  for (int i = 0; i < 500 && actor_.cancelled < 4; ++i) absl::SleepFor(absl::Milliseconds(10));
  EXPECT_GE(actor_.cancelled, 4);
}

TEST_F(RpcTest, SilenceOnAStreamIsAnError) {
  actor_.finish_watch = false;
  actor_.beats = 0;
  auto stream = OpenStream(loop_, stub_->async(), &Async::Watch, {},
                           {.deadline = absl::Seconds(20), .idle_timeout = absl::Milliseconds(50)});
  EXPECT_EQ(RunToCompletion(loop_, stream.Next()).status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(RunToCompletion(loop_, stream.Next()).status().code(), absl::StatusCode::kDeadlineExceeded);
}

TEST_F(RpcTest, DeadlinesAndCancellation) {
  const absl::Status late =
      RunToCompletion(loop_, Call(loop_, stub_->async(), &Async::PeerLost, {}, {.deadline = absl::Milliseconds(50)}))
          .status();
  EXPECT_EQ(late.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(GetErrorInfo(late).outcome(), v1::CALL_OUTCOME_UNKNOWN);

  CancelSource source;
  loop_.RunAfter(absl::Milliseconds(50), [&] { source.Cancel(absl::AbortedError("stopping")); });
  EXPECT_EQ(RunToCompletion(loop_, Call(loop_, stub_->async(), &Async::PeerLost, {},
                                        {.deadline = absl::Seconds(20), .cancel = source.token()}))
                .status()
                .message(),
            "stopping");
}

TEST_F(RpcTest, ADeadServerIsUnavailableAndNothingStarted) {
  server_.reset();
  const absl::Status status = Ping(*stub_).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(GetErrorInfo(status).outcome(), v1::CALL_OUTCOME_NOT_STARTED) << status;
}

TEST_F(RpcTest, CachedChannelsAreKeptUntilTheyFail) {
  int opened = 0;
  ChannelCache channels([&](const std::string& address) {
    ++opened;
    return OpenChannel(address, "a token of a job");
  });
  const std::string address = server_->address();
  const auto first = channels.Open(address).value();
  EXPECT_EQ(channels.Open(address).value(), first);
  EXPECT_TRUE(Ping(*v1::ActorService::NewStub(first)).ok());
  server_.reset();
  // The first call may still go out on the old connection; the next one finds that there is no other.
  for (int i = 0; i < 100 && first->GetState(false) != GRPC_CHANNEL_TRANSIENT_FAILURE; ++i) {
    EXPECT_FALSE(Ping(*v1::ActorService::NewStub(first)).ok());
  }
  EXPECT_NE(channels.Open(address).value(), first);
  channels.KeepOnly({"127.0.0.1:1"});
  (void)channels.Open(address).value();
  EXPECT_EQ(opened, 3);
  EXPECT_EQ(channels.Open("192.0.2.1:80").status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(RpcTest, NothingListensBeyondLoopback) {
  const absl::Status status = Server::Start({.listen = "0.0.0.0:0", .token = "t"}, {}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(Server::Start({.listen = "127.0.0.1:0"}, {}).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(OpenChannel("192.0.2.1:80", "t").status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(Server::Start({.listen = server_->address(), .token = "t"}, {&actor_}).status().code(),
            absl::StatusCode::kUnavailable);
}

TEST(IsLoopback, TakesNoNameForANumber) {
  for (const char* yes : {"127.0.0.1:1", "127.9.8.7:0", "localhost:5", "[::1]:5"}) EXPECT_TRUE(IsLoopback(yes)) << yes;
  for (const char* no : {"127.0.0.1.example.org:1", "127.evil:1", "localhost.example.org:1", "localhost", "127.0.0.1",
                         "10.0.0.1:1", "0.0.0.0:1", "[::]:1", ""}) {
    EXPECT_FALSE(IsLoopback(no)) << no;
  }
}

std::string Get(int port, const std::string& request) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<uint16_t>(port));
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof(to)) != 0) return "not connected";
  for (const char c : request) (void)!send(fd, &c, 1, MSG_NOSIGNAL);  // in pieces
  std::string reply;
  char bytes[512];
  for (ssize_t n; (n = recv(fd, bytes, sizeof(bytes), 0)) > 0;) reply.append(bytes, static_cast<size_t>(n));
  close(fd);
  return reply;
}

TEST(ProbeServer, SaysWhetherItIsReady) {
  EventLoop loop;
  bool ready = false;
  auto probes = ProbeServer::Start(
                    loop, {.listen = "127.0.0.1:0",
                           .ready = [&] { return ready ? absl::OkStatus() : absl::UnavailableError("not joined"); }})
                    .value();
  const auto ask = [&](const std::string& request) {
    std::string reply;
    std::thread client([&] {
      reply = Get(probes->port(), request);
      loop.Post([&] { loop.Stop(); });
    });
    loop.Run();
    client.join();
    return reply;
  };
  EXPECT_TRUE(ask("GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n").starts_with("HTTP/1.1 200 OK"));
  const std::string unready = ask("GET /readyz HTTP/1.1\r\n\r\n");
  EXPECT_TRUE(unready.starts_with("HTTP/1.1 503")) << unready;
  EXPECT_NE(unready.find("not joined"), std::string::npos);
  ready = true;
  EXPECT_TRUE(ask("GET /readyz HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 200 OK"));
  EXPECT_TRUE(ask("GET /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404"));
  EXPECT_EQ(ask(std::string(3000, 'x')), "");
  EXPECT_FALSE(ProbeServer::Start(loop, {.listen = "nonsense", .ready = {}}).ok());
}

TEST(Token, FileIsPrivate) {
  const auto path = std::filesystem::path(::testing::TempDir()) / absl::StrCat("token.", getpid());
  const std::string token = CreateTokenFile(path).value();
  EXPECT_EQ(token.size(), 64u);
  EXPECT_EQ(ReadTokenFile(path).value(), token);
  EXPECT_NE(CreateTokenFile(path).value(), token);
  chmod(path.c_str(), 0644);
  EXPECT_EQ(ReadTokenFile(path).status().code(), absl::StatusCode::kInvalidArgument);
  std::filesystem::remove(path);
  EXPECT_EQ(ReadTokenFile(path).status().code(), absl::StatusCode::kNotFound);
  EXPECT_TRUE(TokensEqual("abc", "abc"));
  EXPECT_FALSE(TokensEqual("abc", "abd"));
  EXPECT_FALSE(TokensEqual("abc", "ab"));
}

}  // namespace
}  // namespace manta::rpc
