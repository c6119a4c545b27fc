// The controller is killed and started again under a cluster that works: workers are not disturbed, callers of actors
// do not notice, what was acknowledged is there, nothing runs twice.
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/file.h"
#include "common/base/kill.h"
#include "common/call/call_client.h"
#include "common/rpc/channel.h"
#include "common/rpc/status.h"
#include "common/rpc/token.h"
#include "controller/node/process.h"
#include "grpcpp/client_context.h"
#include "gtest/gtest.h"
#include "manta/v1/cluster.grpc.pb.h"
#include "tests/integration/marked_processes.h"

namespace manta::testing {
namespace {

namespace fs = std::filesystem;

class HeadRestart : public ::testing::Test {
 protected:
  void SetUp() override {
    const char* build = std::getenv("MANTA_BUILD_DIR");
    bin_ = fs::absolute(fs::path(build != nullptr ? build : "build") / "bin");
    mark_ = absl::StrCat("head-restart-", getpid());
    dir_ = fs::path(::testing::TempDir()) / mark_;
    fs::create_directories(dir_ / "logs");
    token_ = rpc::CreateTokenFile(dir_ / "token").value();
    StartHead();
    node_.emplace(
        Start("manta-node",
              {"--controller", address_, "--token-file", (dir_ / "token").string(), "--name", "n0", "--cpu-slots", "4"},
              "node-n0.log", -1));
    v1::WaitNodesRequest wait;
    wait.set_nodes(1);
    wait.set_timeout_ms(10000);
    ASSERT_TRUE(Call(&v1::ClusterService::Stub::WaitNodes, wait).ok());
  }
  void TearDown() override {
    for (int i = 0; i < 100 && !MarkedProcesses(mark_).empty(); ++i) {
      for (const FoundProcess& process : MarkedProcesses(mark_)) KillProcess(process.pid, SIGKILL);
      absl::SleepFor(absl::Milliseconds(10));
    }
    head_->WaitFor(absl::Seconds(5));
    node_->WaitFor(absl::Seconds(5));
    if (!HasFailure()) fs::remove_all(dir_);
  }

  void StartHead() {
    int out[2];
    ASSERT_EQ(pipe2(out, O_CLOEXEC), 0);
    head_.emplace(Start("head_program", {dir_.string()}, "controller.log", out[1]));
    close(out[1]);
    std::string line;
    for (char c; read(out[0], &c, 1) == 1 && c != '\n';) line += c;
    close(out[0]);
    ASSERT_TRUE(absl::StartsWith(line, "listening ")) << line;
    address_ = line.substr(10);
    stub_ = v1::ClusterService::NewStub(rpc::OpenChannel(address_, token_).value());
  }
  void KillHead() {
    ASSERT_TRUE(head_->Signal(SIGKILL));
    ASSERT_TRUE(head_->WaitFor(absl::Seconds(5)).has_value());
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
    request.set_executable((bin_ / "counting_actor").string());
    request.add_args((dir_ / "executed").string());
    request.set_start_deadline_ms(10000);
    request.mutable_restart()->set_kind(v1::RestartPolicy::FAIL_JOB);
    request.mutable_placement()->add_bundles()->set_cpu_slots(1);
    request.mutable_placement()->set_deadline_ms(10000);
    return Call(&v1::ClusterService::Stub::CreateGroup, request);
  }
  std::map<int, int> Executed() const {
    std::map<int, int> executed;
    std::ifstream file(dir_ / "executed");
    for (std::string line; std::getline(file, line);) {
      int number = -1;
      EXPECT_TRUE(absl::SimpleAtoi(line, &number)) << line;
      ++executed[number];
    }
    return executed;
  }
  Process Start(const std::string& name, std::vector<std::string> args, const std::string& log, int stdout_fd) {
    const int fd = open((dir_ / "logs" / log).c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    Process process = Process::Spawn({.executable = (bin_ / name).string(),
                                      .args = std::move(args),
                                      .env = {{kMarkVariable, mark_}},
                                      .stdout_fd = stdout_fd >= 0 ? stdout_fd : fd,
                                      .stderr_fd = fd,
                                      .new_process_group = true})
                          .value();
    close(fd);
    return process;
  }

  std::string mark_, token_, address_;
  fs::path bin_, dir_;
  std::optional<Process> head_, node_;
  std::unique_ptr<v1::ClusterService::Stub> stub_;
};

TEST_F(HeadRestart, TwentyKillsDuringFiveHundredCallsASecond) {
  const auto group = CreateCounter();
  ASSERT_TRUE(group.ok()) << group.status();
  const v1::ActorInfo actor = group->ranks(0);
  auto client = call::CallClient::Create({.token = token_, .caller = {}}).value();
  auto peer = client->Connect(actor.address(), actor.actor_id(), actor.epoch());
  ASSERT_TRUE(peer.ok()) << peer.status();

  std::atomic<bool> stop{false};
  std::map<int, absl::Status> told;
  double slowest_ms = 0;
  std::thread caller([&] {
    const absl::Time begin = absl::Now();
    for (int i = 0; !stop; ++i) {
      absl::SleepFor(begin + absl::Milliseconds(2 * i) - absl::Now());
      const absl::Time sent = absl::Now();
      const auto reply = (*peer)->CallBlocking("count", absl::StrCat(i), {.deadline = absl::Seconds(5)});
      told[i] = reply.status();
      slowest_ms = std::max(slowest_ms, absl::ToDoubleMilliseconds(absl::Now() - sent));
      EXPECT_TRUE(!reply.ok() || *reply == absl::StrCat(i));
    }
  });
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
  stop = true;
  caller.join();

  const std::map<int, int> executed = Executed();
  int failed = 0;
  for (const auto& [number, times] : executed) EXPECT_EQ(times, 1) << "call " << number << " ran twice";
  for (const auto& [number, status] : told) {
    if (status.ok()) {
      EXPECT_EQ(executed.count(number), 1u) << "call " << number << " was answered and did not run";
    } else {
      ++failed;
    }
  }
  std::printf("%zu calls, %d reported as failed, slowest %.0f ms; kill to listening again at most %.0f ms\n",
              told.size(), failed, slowest_ms, longest_gap);
  EXPECT_GT(told.size(), 500u);
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
  EXPECT_TRUE(MarkedProcesses(mark_).empty());
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
  for (const FoundProcess& process : MarkedProcesses(mark_)) {
    EXPECT_EQ(process.command.find("counting_actor "), std::string::npos) << process.command;
  }
}

TEST_F(HeadRestart, TheAgentIsKilledAndTakesItsWorkersBack) {
  const auto group = CreateCounter();
  ASSERT_TRUE(group.ok()) << group.status();
  ASSERT_TRUE(node_->Signal(SIGKILL));
  ASSERT_TRUE(node_->WaitFor(absl::Seconds(5)).has_value());
  node_.emplace(
      Start("manta-node",
            {"--controller", address_, "--token-file", (dir_ / "token").string(), "--name", "n0", "--cpu-slots", "4"},
            "node-n0.log", -1));
  absl::SleepFor(absl::Seconds(2));
  const auto same = CreateCounter();
  ASSERT_TRUE(same.ok()) << same.status();
  EXPECT_TRUE(same->adopted());
  EXPECT_EQ(same->ranks(0).pid(), group->ranks(0).pid());
  EXPECT_EQ(same->epoch(), group->epoch());
}

}  // namespace
}  // namespace manta::testing
