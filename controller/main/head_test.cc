// The head over its real services and its real journal, with an agent and callers that speak gRPC.
#include "controller/main/no_jobs_for_test.h"

#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "common/base/file.h"
#include "common/rpc/channel.h"
#include "common/rpc/status.h"
#include "common/rpc/token.h"
#include "gmock/gmock.h"
#include "grpcpp/client_context.h"
#include "gtest/gtest.h"
#include "manta/v1/cluster.grpc.pb.h"
#include "manta/v1/node.grpc.pb.h"

namespace manta::controller {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

// A head on a thread of its own, as a process has it.
class RunningHead {
 public:
  explicit RunningHead(const fs::path& dir, uint64_t expect_incarnation = 0) {
    HeadOptions options = LocalHeadOptions(dir);
    auto head = Head::Start(loop_, std::move(options), &jobs_, [](const std::string&) {});
    EXPECT_TRUE(head.ok()) << head.status();
    head_ = *std::move(head);
    if (expect_incarnation != 0) {
      EXPECT_EQ(head_->incarnation(), expect_incarnation);
    }
    thread_ = std::thread([this] { loop_.Run(); });
    stub_ = v1::ClusterService::NewStub(
        rpc::OpenChannel(head_->address(), rpc::ReadTokenFile(dir / "token").value()).value());
  }
  ~RunningHead() {
    head_->StopServing(absl::ZeroDuration());
    loop_.Stop();
    thread_.join();
  }
  Head& head() { return *head_; }

  template <typename Request, typename Reply>
  absl::StatusOr<Reply> Call(grpc::Status (v1::ClusterService::Stub::*method)(grpc::ClientContext*, const Request&,
                                                                              Reply*),
                             const Request& request) {
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(absl::Now() + absl::Seconds(20)));
    Reply reply;
    const absl::Status status = rpc::FromGrpc((stub_.get()->*method)(&context, request, &reply));
    if (!status.ok()) return status;
    return reply;
  }
  v1::ClusterService::Stub& stub() { return *stub_; }

 private:
  EventLoop loop_;
  NoJobs jobs_;
  std::unique_ptr<Head> head_;
  std::thread thread_;
  std::unique_ptr<v1::ClusterService::Stub> stub_;
};

// An agent that joins, beats, and starts nothing.
class FakeAgent {
 public:
  FakeAgent(const std::string& address, const std::string& token, int cpu_slots)
      : stub_(v1::NodeService::NewStub(rpc::OpenChannel(address, token).value())), stream_(stub_->Join(&context_)) {
    v1::NodeEvent hello;
    hello.mutable_hello()->set_node("n0");
    hello.mutable_hello()->set_cpu_slots(cpu_slots);
    hello.mutable_hello()->set_incarnation(5);
    EXPECT_TRUE(stream_->Write(hello));
    v1::NodeCommand command;
    EXPECT_TRUE(stream_->Read(&command));
    EXPECT_TRUE(command.has_welcome());
    beats_ = std::thread([this] {
      v1::NodeEvent beat;
      for (uint64_t n = 1; !stop_.WaitForNotificationWithTimeout(absl::Milliseconds(200)); ++n) {
        beat.mutable_beat()->set_sequence(n);
        if (!stream_->Write(beat)) return;
      }
    });
    reads_ = std::thread([this] {
      v1::NodeCommand ignored;
      while (stream_->Read(&ignored)) ++commands_;
    });
  }
  ~FakeAgent() {
    stop_.Notify();
    context_.TryCancel();
    beats_.join();
    reads_.join();
  }
  int commands() const { return commands_; }

 private:
  grpc::ClientContext context_;
  std::unique_ptr<v1::NodeService::Stub> stub_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::NodeEvent, v1::NodeCommand>> stream_;
  absl::Notification stop_;
  std::atomic<int> commands_{0};
  std::thread beats_, reads_;
};

class HeadTest : public ::testing::Test {
 protected:
  void SetUp() override {
    dir_ = fs::path(::testing::TempDir()) / absl::StrCat("head-test-", getpid());
    fs::create_directories(dir_);
    token_ = rpc::CreateTokenFile(dir_ / "token").value();
  }
  void TearDown() override { fs::remove_all(dir_); }
  static v1::PlacementRequest Placement(const std::string& key, int slots) {
    v1::PlacementRequest request;
    request.set_key(key);
    request.set_name(key);
    request.add_bundles()->set_cpu_slots(slots);
    request.set_repeat(1);
    request.set_deadline_ms(10000);
    return request;
  }
  fs::path dir_;
  std::string token_;
};

TEST_F(HeadTest, WhatWasAcknowledgedIsThereForTheNextHead) {
  std::string address;
  uint64_t id = 0;
  {
    RunningHead head(dir_, 1);
    address = head.head().address();
    EXPECT_EQ(ReadFile(dir_ / "controller.address").value(), address + "\n");
    FakeAgent agent(address, token_, 4);
    v1::WaitNodesRequest wait;
    wait.set_nodes(1);
    wait.set_timeout_ms(5000);
    ASSERT_TRUE(head.Call(&v1::ClusterService::Stub::WaitNodes, wait).ok());
    const auto placed = head.Call(&v1::ClusterService::Stub::CreatePlacement, Placement("a", 3));
    ASSERT_TRUE(placed.ok()) << placed.status();
    id = placed->id();
    EXPECT_EQ(id >> 32, 1u);
    EXPECT_EQ(placed->ranks(0).node(), "n0");
  }
  RunningHead head(dir_, 2);
  EXPECT_EQ(head.head().address(), address);  // those who know it find the new head there
  FakeAgent agent(address, token_, 4);
  const auto again = head.Call(&v1::ClusterService::Stub::CreatePlacement, Placement("a", 3));
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->id(), id);
  // Its slots are taken: what does not fit beside it is refused.
  v1::PlacementRequest too_much = Placement("b", 2);
  too_much.set_deadline_ms(0);
  EXPECT_FALSE(head.Call(&v1::ClusterService::Stub::CreatePlacement, too_much).ok());
  v1::PlacementRef ref;
  ref.set_id(id);
  EXPECT_TRUE(head.Call(&v1::ClusterService::Stub::RemovePlacement, ref).ok());
}

TEST_F(HeadTest, ASecondHeadIsRefused) {
  RunningHead head(dir_);
  EventLoop loop;
  NoJobs jobs;
  const auto second = Head::Start(
      loop, {.run_dir = dir_, .token_file = dir_ / "token", .listen = "127.0.0.1:0", .journal_dir = {}, .core = {}},
      &jobs, [](const std::string&) {});
  EXPECT_THAT(std::string(second.status().message()),
              HasSubstr(absl::StrCat("another controller (pid ", getpid(), ")")));
}

TEST_F(HeadTest, AResolveStreamEndsWithItsClient) {
  RunningHead head(dir_);
  for (int i = 0; i < 20; ++i) {
    grpc::ClientContext context;
    v1::ResolveRequest request;
    request.set_name("nobody");
    const auto reader = head.stub().Resolve(&context, request);
    context.TryCancel();
    v1::ResolveReply reply;
    while (reader->Read(&reply)) continue;
    EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
  }
}

TEST_F(HeadTest, PlacementsThroughGrpcAreCounted) {
  RunningHead head(dir_);
  FakeAgent agent(head.head().address(), token_, 4096);
  v1::WaitNodesRequest wait;
  wait.set_nodes(1);
  wait.set_timeout_ms(5000);
  ASSERT_TRUE(head.Call(&v1::ClusterService::Stub::WaitNodes, wait).ok());
  std::atomic<int> pairs{0}, failed{0};
  const absl::Time end = absl::Now() + absl::Seconds(1);
  std::vector<std::thread> callers;
  for (int c = 0; c < 16; ++c) {
    callers.emplace_back([&, c] {
      for (int i = 0; absl::Now() < end; ++i) {
        const auto placed =
            head.Call(&v1::ClusterService::Stub::CreatePlacement, Placement(absl::StrCat(c, "/", i), 1));
        v1::PlacementRef ref;
        if (placed.ok()) ref.set_id(placed->id());
        if (placed.ok() && head.Call(&v1::ClusterService::Stub::RemovePlacement, ref).ok()) {
          ++pairs;
        } else {
          ++failed;
        }
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(failed, 0);
  EXPECT_GT(pairs, 10);
  std::printf("%d pairs in a second by 16 blocking callers\n", pairs.load());
}

}  // namespace
}  // namespace manta::controller
