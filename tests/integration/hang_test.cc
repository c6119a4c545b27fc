// A trainer rank that hangs while its process lives and beats: the run's watchdog finds it, has the stacks of its group
// written down, and ends the run. One thread is stopped alone, by ptrace; a signal would stop the whole process, which
// is another failure (a silent actor).
#include <sys/ptrace.h>
#include <sys/wait.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/integration/manta_run.h"

namespace manta::testing {
namespace {

// The thread of process `pid` that is called `name`; 0 where there is none.
pid_t ThreadOf(int pid, const std::string& name) {
  std::error_code error;
  for (std::filesystem::directory_iterator it(absl::StrCat("/proc/", pid, "/task"), error), end; !error && it != end;
       it.increment(error)) {
    std::string found;
    std::getline(std::ifstream(it->path() / "comm"), found);
    if (found == name) return static_cast<pid_t>(std::stol(it->path().filename().string()));
  }
  return 0;
}

TEST(HangTest, ATrainerThatStandsStillEndsTheRunWithItsStacks) {
  WorkFolder work;
  MantaRun run(kGrpoConfig, {"grpo.max_num_steps=100000", "grpo.val_period=0", "cluster.progress_timeout_s=2"},
               work / "run");
  ASSERT_TRUE(run.WaitStep(3)) << run.Output();
  const int pid = run.PidOf("--actor-id train-0 ");
  ASSERT_GT(pid, 0);
  const pid_t thread = ThreadOf(pid, "train");
  ASSERT_GT(thread, 0) << "the lane's thread";
  if (ptrace(PTRACE_SEIZE, thread, nullptr, nullptr) != 0)
    GTEST_SKIP() << "ptrace of another process is not allowed here";
  ASSERT_EQ(ptrace(PTRACE_INTERRUPT, thread, nullptr, nullptr), 0);
  // A traced thread's end is its tracer's to take before anybody sees its process's.
  std::thread taker([thread] {
    int status = 0;
    while (waitpid(thread, &status, __WALL) == thread && !WIFEXITED(status) && !WIFSIGNALED(status)) {
    }
  });
  const absl::Time start = absl::Now();
  const ExitStatus exit = run.Wait(absl::Seconds(60));
  std::printf("ended %.1f s after the hang\n", absl::ToDoubleSeconds(absl::Now() - start));
  taker.join();
  EXPECT_EQ(exit.code, 69) << run.Output();
  EXPECT_TRUE(absl::StrContains(run.Output(), "group train: no progress for 2s (step ")) << run.Output();
  // The rank that waits for the one that hangs has written where it waits; what is stopped cannot.
  EXPECT_TRUE(absl::StrContains(run.Log("train-1.log"), "stack of thread")) << run.Log("train-1.log");
}

}  // namespace
}  // namespace manta::testing
