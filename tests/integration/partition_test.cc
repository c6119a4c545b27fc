// Two hosts and the cable between them: what is cut off is fenced before it is replaced, and nothing runs twice,
// neither meanwhile nor when the cable is whole again. The second host is a network namespace.
#include <fcntl.h>

#include <fstream>
#include <sstream>

#include "absl/strings/match.h"
#include "common/base/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "manta/v1/cluster.grpc.pb.h"
#include "tests/integration/runtime_job.h"
#include "tests/testing/netns.h"

namespace manta::testing {
namespace {

using ::testing::HasSubstr;

// What the workers have written: a line "EPOCH MILLISECONDS" every 20 ms.
std::map<uint64_t, std::pair<int64_t, int64_t>> Lives(const std::filesystem::path& file) {
  std::map<uint64_t, std::pair<int64_t, int64_t>> lives;
  std::ifstream stream(file);
  uint64_t epoch;
  for (int64_t ms; stream >> epoch >> ms;) {
    const auto [life, is_new] = lives.try_emplace(epoch, ms, ms);
    life->second.first = std::min(life->second.first, ms);
    life->second.second = std::max(life->second.second, ms);
  }
  return lives;
}

class PartitionTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = NetworkNamespace::Missing(); !why.empty()) GTEST_SKIP() << "netns: " << why;
    job_.emplace("", std::vector<std::string>{"--cluster", "--on-controller-loss", "wait"},
                 std::vector<std::string>{"--cpu-slots", "1", "--label", "host=here"});
    host_.emplace("b", 7);
    const std::string port = job_->address().substr(job_->address().rfind(':') + 1);
    // The head listens on this namespace's loopback; two relays make it be on the other's.
    relay_here_.emplace(Relay({}, host_->here() + ":" + port, job_->address()));
    relay_there_.emplace(Relay(host_->Run({}), "127.0.0.1:" + port, host_->here() + ":" + port));
    stub_ = v1::ClusterService::NewStub(rpc::OpenChannel(job_->address(), job_->token()).value());
  }
  void TearDown() override {
    for (auto* process : {&relay_here_, &relay_there_, &agent_}) {
      if (process->has_value()) (*process)->Signal(SIGKILL);
    }
    host_.reset();
  }
  Process Relay(std::vector<std::string> argv, const std::string& listen, const std::string& target) {
    argv.push_back(std::filesystem::read_symlink("/proc/self/exe").string());
    argv.insert(argv.end(), {"--relay", listen, target});
    int out[2];
    EXPECT_EQ(pipe2(out, O_CLOEXEC), 0);
    Process process = Process::Spawn({.executable = argv[0],
                                      .args = {argv.begin() + 1, argv.end()},
                                      .stdout_fd = out[1],
                                      .death_signal = SIGKILL})
                          .value();
    close(out[1]);
    char c = 0;
    EXPECT_EQ(read(out[0], &c, 1), 1) << "no relay on " << listen;
    close(out[0]);
    return process;
  }
  void StartAgentThere() {
    const auto argv =
        host_->Run({(job_->bin() / "manta-node").string(), "--controller", job_->address(), "--token-file",
                    (job_->run_dir() / "token.node").string(), "--name", "n1", "--cpu-slots", "1", "--label", "host=there"});
    agent_.emplace(job_->StartMarked(argv[0], {argv.begin() + 1, argv.end()}, "node-n1.log"));
  }
  v1::ListReply List() {
    v1::ListRequest request;
    request.set_nodes(true);
    request.set_groups(true);
    return RunToCompletion(loop_, rpc::Call(loop_, stub_->async(), &rpc::AsyncOf<v1::ClusterService>::List, request,
                                            {.deadline = absl::Seconds(5)}))
        .value_or(v1::ListReply());
  }
  std::string StateOf(const std::string& node) {
    const v1::ListReply list = List();  // named: it is to outlive the loop's range
    for (const v1::NodeInfo& info : list.nodes()) {
      if (info.node() == node) return info.state();
    }
    return "absent";
  }
  static bool Await(const std::function<bool()>& condition, absl::Duration limit) {
    const absl::Time until = absl::Now() + limit;
    while (!condition()) {
      if (absl::Now() > until) return false;
      absl::SleepFor(absl::Milliseconds(100));
    }
    return true;
  }

  EventLoop loop_;
  std::optional<RuntimeJob> job_;
  std::optional<NetworkNamespace> host_;
  std::optional<Process> relay_here_, relay_there_, agent_;
  std::unique_ptr<v1::ClusterService::Stub> stub_;
};

TEST_F(PartitionTest, WhatIsCutOffIsFencedAndReplacedAndNothingRunsTwice) {
  StartAgentThere();
  ASSERT_TRUE(Await([&] { return StateOf("n1") != "absent"; }, absl::Seconds(10))) << job_->Log("node-n1.log");
  const std::filesystem::path file = job_->run_dir() / "lives";
  v1::GroupRequest request;
  request.set_role("count");
  request.set_executable((job_->bin() / "runtime_worker").string());
  request.add_args("write");
  request.add_args(file.string());
  request.mutable_placement()->add_bundles()->set_cpu_slots(1);
  request.mutable_placement()->set_repeat(2);  // one on each host
  request.mutable_placement()->set_deadline_ms(10000);
  request.set_start_deadline_ms(10000);
  request.mutable_restart()->set_kind(v1::RestartPolicy::RESTART_GROUP);
  request.mutable_restart()->set_max_restarts(3);
  request.mutable_restart()->set_backoff_ms(100);
  const auto group =
      RunToCompletion(loop_, rpc::Call(loop_, stub_->async(), &rpc::AsyncOf<v1::ClusterService>::CreateGroup, request,
                                       {.deadline = absl::Seconds(20)}));
  ASSERT_TRUE(group.ok()) << group.status();
  ASSERT_TRUE(Await([&] { return !Lives(file).empty(); }, absl::Seconds(5)));

  host_->Cut();
  const absl::Time cut = absl::Now();
  ASSERT_TRUE(
      Await([&] { return absl::StrContains(StateOf("n1"), "LOST") || StateOf("n1") == "lost"; }, absl::Seconds(10)))
      << StateOf("n1");
  std::printf("the node is lost %.1f s after the cut\n", absl::ToDoubleSeconds(absl::Now() - cut));
  ASSERT_TRUE(Await([&] { return absl::StrContains(job_->Log("count-1.log") + job_->Log("count-0.log"), "lease"); },
                    absl::Seconds(10)));
  std::printf("its worker was fenced before %.1f s\n", absl::ToDoubleSeconds(absl::Now() - cut));
  host_->Heal();
  ASSERT_TRUE(Await([&] { return Lives(file).size() >= 2; }, absl::Seconds(30)));  // a second epoch
  absl::SleepFor(absl::Seconds(3));
  const auto lives = Lives(file);
  int64_t before = 0;
  for (const auto& [epoch, life] : lives) {
    std::printf("epoch %lu: %ld to %ld ms\n", epoch & 0xffffffff, life.first, life.second);
    EXPECT_GT(life.first, before) << "two epochs ran at once";
    before = life.second;
  }
  EXPECT_FALSE(absl::StrContains(StateOf("n1"), "LOST"));
}

}  // namespace
}  // namespace manta::testing

int main(int argc, char** argv) {
  manta::testing::MaybeRelay(argc, argv);
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
