// Runs over two hosts (two_hosts.h): a trainer with a rank on each gives what one with both on one host gives, bit for bit;
// and what may be wrong with a second host is told as what it is.
#include "tests/integration/two_hosts.h"

#include "gmock/gmock.h"
#include "tests/integration/manta_run.h"
#include "tests/integration/same_run.h"

namespace manta::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class TwoHostsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = TwoHosts::Missing(); !why.empty()) GTEST_SKIP() << "two hosts: " << why;
  }
  static std::vector<std::string> Both(std::vector<std::string> overrides) {
    overrides.insert(overrides.end(), {"cluster.num_nodes=2", "cluster.trainer_ranks=0"});
    return overrides;
  }
  static void ExpectSameMetrics(const StepMetrics& one, const StepMetrics& two, size_t steps) {
    ASSERT_EQ(two.size(), steps);
    ASSERT_EQ(one.size(), steps);
    for (const auto& [step, metrics] : one) EXPECT_EQ(Results(two.at(step)), Results(metrics)) << "step " << step;
  }
  WorkFolder work_;
};

// The second host comes while the run waits for it; the run's second half is another run, which goes on from its checkpoint.
TEST_F(TwoHostsTest, SftIsTheSameAsOnOneHost) {
  TwoHosts cluster(21);
  cluster.JoinHere();
  const auto settings = [](int steps) {
    return SmallSft({absl::StrCat("sft.max_num_steps=", steps), "cluster.trainer_threads=1", "checkpointing.save_period=100"});
  };
  SubmittedRun first = cluster.Submit(kSftConfig, Both(settings(3)), work_ / "two");
  ASSERT_TRUE(first.WaitOutput("waiting for 2 nodes (cluster.num_nodes); there is 1: a")) << first.Output();
  cluster.JoinThere();
  ASSERT_EQ(first.Wait().code, 0) << first.Output() << cluster.Logs();
  EXPECT_TRUE(cluster.AwaitLog("node-a.log", "/train-0 ")) << cluster.Logs();  // has ended
  EXPECT_TRUE(cluster.AwaitLog("node-b.log", "/train-1 ")) << cluster.Logs();
  EXPECT_TRUE(std::filesystem::exists(first.RunFolder() / "logs" / "train-1.log"));
  SubmittedRun second = cluster.Submit(kSftConfig, Both(settings(5)), work_ / "two");
  ASSERT_EQ(second.Wait().code, 0) << second.Output() << cluster.Logs();
  EXPECT_THAT(second.Output(), HasSubstr("resuming after step 3"));

  unsetenv("MANTA_TLS_DIR");
  MantaRun one(kSftConfig, settings(5), work_ / "one");
  ASSERT_EQ(one.Wait().code, 0) << one.Output();
  ExpectSameMetrics(one.Metrics(), second.Metrics(), 5);
  for (const char* file : {"policy/weights/model.safetensors", "policy/optimizer/exp_avg.safetensors",
                           "policy/optimizer/exp_avg_sq.safetensors", "policy/optimizer/master.safetensors"}) {
    if (!std::filesystem::exists(work_ / "one" / "ckpt" / "step_5" / file)) continue;
    ExpectSameFile(work_ / "one" / "ckpt" / "step_5" / file, work_ / "two" / "ckpt" / "step_5" / file);
  }
  for (const auto& entry : std::filesystem::directory_iterator(work_ / "two" / "ckpt")) {
    EXPECT_THAT(entry.path().filename().string(), Not(HasSubstr("manta-same-folder"))) << "a probe was left behind";
  }
}

TEST_F(TwoHostsTest, GrpoIsTheSameAsOnOneHost) {
  TwoHosts cluster(22);
  cluster.JoinHere();
  cluster.JoinThere();
  const auto settings = SmallGrpo({"grpo.max_num_steps=4", "cluster.trainer_threads=1", "checkpointing.enabled=false"});
  SubmittedRun two = cluster.Submit(kGrpoConfig, Both(settings), work_ / "two");
  ASSERT_EQ(two.Wait().code, 0) << two.Output() << cluster.Logs();
  EXPECT_TRUE(cluster.AwaitLog("node-a.log", "/train-0 ")) << cluster.Logs();  // has ended
  EXPECT_TRUE(cluster.AwaitLog("node-b.log", "/train-1 ")) << cluster.Logs();

  unsetenv("MANTA_TLS_DIR");
  MantaRun one(kGrpoConfig, settings, work_ / "one");
  ASSERT_EQ(one.Wait().code, 0) << one.Output();
  ExpectSameMetrics(one.Metrics(), two.Metrics(), 4);
}

TEST_F(TwoHostsTest, AKilledRankEndsTheRunOnTheOtherHostAndIsNamed) {
  TwoHosts cluster(23);
  cluster.JoinHere();
  cluster.JoinThere();
  SubmittedRun run = cluster.Submit(kSftConfig, Both(SmallSft({"sft.max_num_steps=100000", "checkpointing.enabled=false"})), work_ / "two");
  ASSERT_TRUE(run.WaitStep(2)) << run.Output() << cluster.Logs();
  const int victim = cluster.PidOf("train-1"), other = cluster.PidOf("train-0");
  ASSERT_GT(victim, 1);
  ASSERT_GT(other, 1);
  const absl::Time killed = absl::Now();
  ASSERT_TRUE(KillProcess(victim, SIGKILL));
  const ExitStatus exit = run.Wait(absl::Seconds(30));
  const absl::Duration took = absl::Now() - killed;
  std::printf("the run has ended %.2f s after the kill\n", absl::ToDoubleSeconds(took));
  EXPECT_LT(took, absl::Seconds(8));
  EXPECT_EQ(exit.code, 69);
  EXPECT_THAT(run.Output(), HasSubstr("train-1"));
  EXPECT_THAT(run.Output(), HasSubstr("on b"));
  EXPECT_THAT(run.Output(), HasSubstr("killed by signal 9"));
  for (const absl::Time until = absl::Now() + absl::Seconds(10); cluster.PidOf("train-0") == other && absl::Now() < until;) {
    absl::SleepFor(absl::Milliseconds(50));
  }
  EXPECT_EQ(cluster.PidOf("train-0"), -1) << "the other rank is still there";
}

// A checkpoint folder that merely has the same name on the other host, and a host that does not come.
TEST_F(TwoHostsTest, WhatIsWrongWithTheOtherHostIsTold) {
  TwoHosts cluster(24);
  cluster.JoinHere();
  const std::vector<std::string> settings = SmallSft({"sft.max_num_steps=2", "cluster.wait_for_nodes_s=1"});
  SubmittedRun alone = cluster.Submit(kSftConfig, Both(settings), work_ / "alone");
  EXPECT_EQ(alone.Wait().code, 69) << alone.Output();
  EXPECT_THAT(alone.Output(), HasSubstr("1 of 2 nodes (cluster.num_nodes) have joined within 1s (cluster.wait_for_nodes_s): a; "
                                        "`manta join` brings a machine"));
  const std::filesystem::path folder = work_ / "two" / "ckpt";
  std::filesystem::create_directories(folder);
  cluster.JoinThere(folder);
  SubmittedRun run = cluster.Submit(kSftConfig, Both(SmallSft({"sft.max_num_steps=2"})), work_ / "two");
  EXPECT_EQ(run.Wait().code, 64) << run.Output() << cluster.Logs();
  EXPECT_THAT(run.Output(), HasSubstr("train-1 on b: configure: "));
  EXPECT_THAT(run.Output(), HasSubstr(folder.string() + " is not the controller's folder of that name here"));
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    EXPECT_EQ(entry.path().filename(), ".lock") << "what was tried with is left behind";
  }
}

}  // namespace
}  // namespace manta::testing

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
