// kill -9 of each kind of process in the middle of the GRPO quickstart: the run ends soon, says who died, and leaves
// nothing. And Ctrl-C.
#include <filesystem>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/kill.h"
#include "gtest/gtest.h"
#include "tests/integration/manta_run.h"

namespace manta::testing {
namespace {

constexpr absl::Duration kLimit = absl::Seconds(5);

std::set<std::string> SharedMemory() {
  std::set<std::string> names;
  std::error_code error;
  for (std::filesystem::directory_iterator it("/dev/shm", error), end; !error && it != end; it.increment(error)) {
    names.insert(it->path().filename().string());
  }
  return names;
}

class KillTest : public ::testing::Test {
 protected:
  // Signals the process whose command has `victim` (empty: `manta` itself) once two steps are done, `after` into the
  // third.
  void Signal(const std::string& victim, int signal, absl::Duration after = absl::ZeroDuration()) {
    ASSERT_TRUE(run_.WaitStep(2)) << run_.Output();
    absl::SleepFor(after);
    pid_ = victim.empty() ? run_.process().pid() : run_.PidOf(victim);
    ASSERT_GT(pid_, 0);
    const absl::Time start = absl::Now();
    ASSERT_TRUE(KillProcess(pid_, signal));
    exit_ = run_.Wait(absl::Seconds(20));
    const absl::Duration ended = absl::Now() - start;
    while (!run_.Alive().empty() && absl::Now() - start < kLimit) absl::SleepFor(absl::Milliseconds(5));
    const absl::Duration gone = absl::Now() - start;
    std::printf("%s: manta ended after %.0f ms, nothing left after %.0f ms\n",
                victim.empty() ? "manta" : victim.c_str(), absl::ToDoubleMilliseconds(ended),
                absl::ToDoubleMilliseconds(gone));
    EXPECT_LT(gone, kLimit);
    for (const FoundProcess& process : run_.Alive()) ADD_FAILURE() << "left: " << process.pid << " " << process.command;
    for (const std::string& name : SharedMemory()) {
      EXPECT_TRUE(shared_memory_before_.contains(name)) << "left: /dev/shm/" << name;
    }
  }
  void ExpectKilled(const std::string& victim, const std::string& message, absl::Duration after) {
    ASSERT_NO_FATAL_FAILURE(Signal(victim, SIGKILL, after));
    EXPECT_EQ(exit_.code, 69) << exit_.ToString();
    EXPECT_TRUE(absl::StrContains(run_.Output(), "manta: error: ")) << run_.Output();
    EXPECT_TRUE(absl::StrContains(run_.Output(), message)) << "expected: " << message << "\n" << run_.Output();
  }

  const std::set<std::string> shared_memory_before_ = SharedMemory();
  static std::vector<std::string> Overrides(const std::string& more) {
    std::vector<std::string> overrides = {"grpo.val_at_start=false", "grpo.val_period=0", "checkpointing.save_period=1"};
    if (!more.empty()) overrides.push_back(more);
    return overrides;
  }
  explicit KillTest(const std::string& more = "") : run_(kGrpoConfig, Overrides(more), work_ / "run") {}

  WorkFolder work_;
  MantaRun run_;
  int pid_ = -1;
  ExitStatus exit_;
};

TEST_F(KillTest, Trainer0) {
  ExpectKilled("--actor-id train-0 ", "train-0 (pid ", absl::Milliseconds(10));
  EXPECT_TRUE(absl::StrContains(run_.Output(), absl::StrCat("train-0 (pid ", pid_, " on "))) << run_.Output();
  EXPECT_TRUE(absl::StrContains(run_.Output(), ") was killed by signal 9 (Killed)")) << run_.Output();
}
TEST_F(KillTest, Trainer1) {
  ExpectKilled("--actor-id train-1 ", "train-1 (pid ", absl::Milliseconds(150));
}
TEST_F(KillTest, Generator) {
  ExpectKilled("--actor-id gen-0 ", "gen-0 (pid ", absl::Milliseconds(40));
}
TEST_F(KillTest, RewardWorker) {
  ExpectKilled("--actor-id reward-0 ", "reward-0 (pid ", absl::Milliseconds(20));
}
TEST_F(KillTest, Shim) {
  ExpectKilled("--shim gen-0.", "gen-0 (pid ", absl::Milliseconds(100));
}
class KillTestStop : public KillTest {
 protected:
  KillTestStop() : KillTest("cluster.on_controller_loss=stop") {}
};
TEST_F(KillTestStop, NodeAgent) {
  ExpectKilled("manta-node --controller ", "the node agent of ", absl::Milliseconds(80));
}
TEST_F(KillTestStop, Controller) {
  ExpectKilled("manta-controller ", "manta-controller was killed by signal 9 (Killed)", absl::Milliseconds(60));
}
TEST_F(KillTest, Manta) {
  ASSERT_NO_FATAL_FAILURE(Signal("", SIGKILL));
  EXPECT_EQ(exit_.signal, SIGKILL) << exit_.ToString();  // 137 to a shell
  EXPECT_TRUE(absl::StrContains(run_.Log("controller.log"), "manta run was killed")) << run_.Log("controller.log");
}
TEST_F(KillTest, CtrlC) {
  ASSERT_NO_FATAL_FAILURE(Signal("", SIGINT, absl::Milliseconds(30)));
  EXPECT_EQ(exit_.code, 1) << exit_.ToString();
  EXPECT_TRUE(absl::StrContains(run_.Output(), "manta: stopping the run")) << run_.Output();
}

}  // namespace
}  // namespace manta::testing
