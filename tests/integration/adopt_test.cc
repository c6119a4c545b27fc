// What becomes of workers when those above them die or fall silent: a node agent that is killed and started again, one
// that is stopped, and all of them at once. Jobs that wait for their controller (--on-controller-loss wait).
#include "absl/strings/match.h"
#include "common/base/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/integration/runtime_job.h"

namespace manta::testing {
namespace {

using ::testing::HasSubstr;

constexpr char kGroups[] = "train 2 1\ngen 1 1\n";

int AliveWith(const RuntimeJob& job, const std::string& text) {
  int count = 0;
  for (const FoundProcess& process : job.Alive()) count += absl::StrContains(process.command, text);
  return count;
}

bool Await(const std::function<bool()>& condition, absl::Duration limit) {
  const absl::Time until = absl::Now() + limit;
  while (!condition()) {
    if (absl::Now() > until) return false;
    absl::SleepFor(absl::Milliseconds(20));
  }
  return true;
}

TEST(Adopt, AnAgentThatIsStartedAgainTakesItsWorkersOver) {
  RuntimeJob job(kGroups, {"--on-controller-loss", "wait"});
  ASSERT_TRUE(job.WaitReady());
  const int train0 = job.PidOf("train-0"), gen0 = job.PidOf("gen-0");
  for (int round = 0; round < 3; ++round) {
    ASSERT_TRUE(job.node().Signal(SIGKILL));
    ASSERT_TRUE(job.node().WaitFor(absl::Seconds(5)).has_value());
    job.StartNode();
    ASSERT_TRUE(Await([&] { return absl::StrContains(job.Log("node-n0.log"), "train-0 (pid "); }, absl::Seconds(5)))
        << job.Log("node-n0.log");
    absl::SleepFor(absl::Seconds(1.5));
    EXPECT_EQ(job.PidOf("train-0"), train0);
    EXPECT_EQ(job.PidOf("gen-0"), gen0);
    EXPECT_TRUE(KillProcess(train0, 0));
  }
  // It still hears of their ends at once.
  const absl::Time killed = absl::Now();
  ASSERT_TRUE(KillProcess(train0, SIGKILL));
  const auto ended = job.WaitEnded();
  std::printf("kill -9 of an adopted worker to the run's end: %.1f ms\n",
              absl::ToDoubleMilliseconds(absl::Now() - killed));
  ASSERT_TRUE(ended.has_value());
  EXPECT_THAT(std::string(ended->message()), HasSubstr("train-0 (pid "));
  EXPECT_THAT(std::string(ended->message()), HasSubstr("was killed by signal 9"));
  EXPECT_TRUE(job.WaitAllGone(absl::Seconds(10)).ok());
}

TEST(Adopt, WorkersThatEndMeanwhileAreToldLater) {
  RuntimeJob job(kGroups, {"--on-controller-loss", "wait"});
  ASSERT_TRUE(job.WaitReady());
  const int gen0 = job.PidOf("gen-0");
  ASSERT_TRUE(job.node().Signal(SIGKILL));
  ASSERT_TRUE(job.node().WaitFor(absl::Seconds(5)).has_value());
  ASSERT_TRUE(KillProcess(gen0, SIGABRT));
  absl::SleepFor(absl::Seconds(1));
  job.StartNode();
  const auto ended = job.WaitEnded();
  ASSERT_TRUE(ended.has_value());
  EXPECT_THAT(std::string(ended->message()), HasSubstr(absl::StrCat("gen-0 (pid ", gen0)));
  EXPECT_THAT(std::string(ended->message()), HasSubstr("was killed by signal 6"));
  EXPECT_TRUE(job.WaitAllGone(absl::Seconds(10)).ok());
}

TEST(Adopt, AStoppedAgentIsLostAndItsWorkersFenced) {
  RuntimeJob job(kGroups, {"--on-controller-loss", "wait"});
  ASSERT_TRUE(job.WaitReady());
  const absl::Time stopped = absl::Now();
  ASSERT_TRUE(job.node().Signal(SIGSTOP));
  ASSERT_TRUE(Await([&] { return AliveWith(job, "runtime_worker") == 0; }, absl::Seconds(10)));
  std::printf("workers of a stopped agent ended %.1f s after it was\n", absl::ToDoubleSeconds(absl::Now() - stopped));
  const auto ended = job.WaitEnded();
  ASSERT_TRUE(ended.has_value());
  std::printf("the run has ended %.1f s after it was\n", absl::ToDoubleSeconds(absl::Now() - stopped));
  EXPECT_LT(absl::Now() - stopped, absl::Seconds(10));
  EXPECT_EQ(GetErrorInfo(*ended).origin(), v1::ORIGIN_NODE_LOST);
  EXPECT_THAT(job.Log("train-0.log"), HasSubstr("the lease of this node has run out"));
  job.node().Signal(SIGCONT);
  EXPECT_TRUE(job.WaitAllGone(absl::Seconds(20)).ok());
}

TEST(Adopt, NothingIsLeftWhenAllAreKilledAtOnce) {
  RuntimeJob job(kGroups, {"--on-controller-loss", "wait"});
  ASSERT_TRUE(job.WaitReady());
  for (const FoundProcess& process : job.Alive()) {
    if (!absl::StrContains(process.command, "--shim") && !absl::StrContains(process.command, "runtime_worker")) {
      KillProcess(process.pid, SIGKILL);  // controller, agent, launcher
    }
  }
  EXPECT_EQ(AliveWith(job, "runtime_worker"), 3);
  const auto gone = job.WaitAllGone(absl::Seconds(15));
  ASSERT_TRUE(gone.ok()) << gone.status().message();
  std::printf("all gone %.1f s later\n", absl::ToDoubleSeconds(*gone));
}

}  // namespace
}  // namespace manta::testing
