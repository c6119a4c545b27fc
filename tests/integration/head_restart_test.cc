// The controller is killed and started again under a cluster that works: workers are not disturbed, callers of actors
// do not notice, what was acknowledged is there, nothing runs twice.
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/kill.h"
#include "common/call/call_client.h"
#include "common/rpc/channel.h"
#include "common/rpc/status.h"
#include "controller/node/process.h"
#include "grpcpp/client_context.h"
#include "gtest/gtest.h"
#include "manta/v1/cluster.grpc.pb.h"
#include "tests/integration/job_folder.h"

namespace manta::testing {
namespace {

namespace fs = std::filesystem;

class HeadRestart : public ::testing::Test {
 protected:
  void SetUp() override {
    StartHead();
    StartNode();
    v1::WaitNodesRequest wait;
    wait.set_nodes(1);
    wait.set_timeout_ms(10000);
    ASSERT_TRUE(Call(&v1::ClusterService::Stub::WaitNodes, wait).ok());
  }
  void TearDown() override {
    folder_.KillAll();
    for (std::optional<Process>* process : {&head_, &node_}) {
      if (process->has_value()) (*process)->WaitFor(absl::Seconds(5));
    }
    folder_.Remove();
  }

  void StartHead() {
    auto [head, address] = folder_.StartServer("head_program", {folder_.path().string()}, "controller.log");
    head_.emplace(std::move(head));
    address_ = address;
    stub_ = v1::ClusterService::NewStub(rpc::OpenChannel(address_, folder_.token()).value());
  }
  void KillHead() {
    ASSERT_TRUE(head_->Signal(SIGKILL));
    ASSERT_TRUE(head_->WaitFor(absl::Seconds(5)).has_value());
  }
  void StartNode() {
    node_.emplace(folder_.Start(
        "manta-node",
        {"--controller", address_, "--token-file", folder_.agents_token_file(), "--name", "n0", "--cpu-slots", "4"},
        "node-n0.log"));
  }
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
  absl::StatusOr<v1::GroupReply> CreateCounter() {
    v1::GroupRequest request;
    request.set_role("counter");
    request.set_executable((folder_.bin() / "counting_actor").string());
    request.add_args((folder_.path() / "executed").string());
    request.set_start_deadline_ms(10000);
    request.mutable_restart()->set_kind(v1::RestartPolicy::FAIL_JOB);
    request.mutable_placement()->add_bundles()->set_cpu_slots(1);
    request.mutable_placement()->set_deadline_ms(10000);
    return Call(&v1::ClusterService::Stub::CreateGroup, request);
  }
  std::map<int, int> Executed() const {
    std::map<int, int> executed;
    std::ifstream file(folder_.path() / "executed");
    for (std::string line; std::getline(file, line);) {
      int number = -1;
      EXPECT_TRUE(absl::SimpleAtoi(line, &number)) << line;
      ++executed[number];
    }
    return executed;
  }

  JobFolder folder_{"head-restart"};
  std::string address_;
  std::optional<Process> head_, node_;
  std::unique_ptr<v1::ClusterService::Stub> stub_;
};

// Calls "count" 500 times a second, each with the next number, until it is told to stop or is destroyed.
class Caller {
 public:
  explicit Caller(call::Peer& peer) : thread_([this, &peer] { Run(peer); }) {}
  ~Caller() { Stop(); }
  void Stop() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
  }
  // Once it has stopped:
  std::map<int, absl::Status> told;
  double slowest_ms = 0;

 private:
  void Run(call::Peer& peer) {
    const absl::Time begin = absl::Now();
    for (int i = 0; !stop_; ++i) {
      absl::SleepFor(begin + absl::Milliseconds(2 * i) - absl::Now());
      const absl::Time sent = absl::Now();
      const auto reply = peer.CallBlocking("count", absl::StrCat(i), {.deadline = absl::Seconds(5)});
      told[i] = reply.status();
      slowest_ms = std::max(slowest_ms, absl::ToDoubleMilliseconds(absl::Now() - sent));
      EXPECT_TRUE(!reply.ok() || *reply == absl::StrCat(i));
    }
  }
  std::atomic<bool> stop_{false};
  std::thread thread_;  // the last: it uses the others
};

TEST_F(HeadRestart, TwentyKillsDuringFiveHundredCallsASecond) {
  const auto group = CreateCounter();
  ASSERT_TRUE(group.ok()) << group.status();
  const v1::ActorInfo actor = group->ranks(0);
  auto client = call::CallClient::Create({.token = folder_.token(), .caller = {}}).value();
  auto peer = client->Connect(actor.address(), actor.actor_id(), actor.epoch());
  ASSERT_TRUE(peer.ok()) << peer.status();

  Caller caller(**peer);
  double longest_gap = 0;
  for (int kills = 0; kills < 20; ++kills) {
    v1::PlacementRequest request;
    request.set_key(absl::StrCat("p", kills));
    request.add_bundles()->set_cpu_slots(1);
    request.set_deadline_ms(10000);
    const auto placed = Call(&v1::ClusterService::Stub::CreatePlacement, request);
    ASSERT_TRUE(placed.ok()) << placed.status();
    const absl::Time killed = absl::Now();
    KillHead();
    StartHead();
    longest_gap = std::max(longest_gap, absl::ToDoubleMilliseconds(absl::Now() - killed));
    // What was acknowledged is there, and may be given back.
    const auto again = Call(&v1::ClusterService::Stub::CreatePlacement, request);
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_EQ(again->id(), placed->id());
    v1::PlacementRef ref;
    ref.set_id(placed->id());
    EXPECT_TRUE(Call(&v1::ClusterService::Stub::RemovePlacement, ref).ok());
  }
  caller.Stop();

  const std::map<int, int> executed = Executed();
  int failed = 0;
  for (const auto& [number, times] : executed) EXPECT_EQ(times, 1) << "call " << number << " ran twice";
  for (const auto& [number, status] : caller.told) {
    if (status.ok()) {
      EXPECT_EQ(executed.count(number), 1u) << "call " << number << " was answered and did not run";
    } else {
      ++failed;
    }
  }
  std::printf("%zu calls, %d reported as failed, slowest %.0f ms; kill to listening again at most %.0f ms\n",
              caller.told.size(), failed, caller.slowest_ms, longest_gap);
  EXPECT_GT(caller.told.size(), 500u);
  EXPECT_EQ(failed, 0);

  // The same process in the same epoch, and the head knows it.
  const auto same = CreateCounter();
  ASSERT_TRUE(same.ok()) << same.status();
  EXPECT_TRUE(same->adopted());
  EXPECT_EQ(same->epoch(), group->epoch());
  EXPECT_EQ(same->ranks(0).pid(), actor.pid());
  // And it ends when it is told to.
  client.reset();
  v1::ShutdownRequest shutdown;
  shutdown.set_grace_ms(1000);
  const auto down = Call(&v1::ClusterService::Stub::Shutdown, shutdown);
  EXPECT_TRUE(down.ok()) << down.status();
  EXPECT_EQ(head_->WaitFor(absl::Seconds(5))->code, 0);
  EXPECT_TRUE(node_->WaitFor(absl::Seconds(5)).has_value());
  EXPECT_TRUE(folder_.Alive().empty());
}

TEST_F(HeadRestart, AWorkerThatDiesWhileThereIsNoHeadIsReported) {
  const auto group = CreateCounter();
  ASSERT_TRUE(group.ok()) << group.status();
  KillHead();
  ASSERT_TRUE(KillProcess(static_cast<int>(group->ranks(0).pid()), SIGKILL));
  absl::SleepFor(absl::Milliseconds(200));
  StartHead();
  std::string state;
  for (int i = 0; i < 100; ++i) {
    v1::DescribeRequest request;
    request.set_what("counter");
    const auto described = Call(&v1::ClusterService::Stub::Describe, request);
    if (!described.ok() || !described->has_group()) break;  // it ended, and is gone
    state = described->group().state();
    if (state != "READY" && state != "STARTING" && state != "PLACED") break;
    absl::SleepFor(absl::Milliseconds(100));
  }
  EXPECT_NE(state, "READY");
  for (const FoundProcess& process : folder_.Alive()) {
    EXPECT_EQ(process.command.find("counting_actor "), std::string::npos) << process.command;
  }
}

TEST_F(HeadRestart, TheAgentIsKilledAndTakesItsWorkersBack) {
  const auto group = CreateCounter();
  ASSERT_TRUE(group.ok()) << group.status();
  ASSERT_TRUE(node_->Signal(SIGKILL));
  ASSERT_TRUE(node_->WaitFor(absl::Seconds(5)).has_value());
  StartNode();
  absl::SleepFor(absl::Seconds(2));
  const auto same = CreateCounter();
  ASSERT_TRUE(same.ok()) << same.status();
  EXPECT_TRUE(same->adopted());
  EXPECT_EQ(same->ranks(0).pid(), group->ranks(0).pid());
  EXPECT_EQ(same->epoch(), group->epoch());
}

}  // namespace
}  // namespace manta::testing
