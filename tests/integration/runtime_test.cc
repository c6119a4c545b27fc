// The actor runtime in real processes: what starts, what ends, and what is told when something is killed.
#include <sys/wait.h>

#include "absl/strings/match.h"
#include "common/base/kill.h"
#include "common/base/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/integration/runtime_job.h"

namespace manta::testing {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;

constexpr char kTwoGroups[] = "train 2 1\ngen 1 1\nreward 1 0\n";
constexpr absl::Duration kLimit = absl::Seconds(5);

void ExpectAllGone(RuntimeJob& job) {
  const auto gone = job.WaitAllGone(kLimit);
  EXPECT_TRUE(gone.ok()) << "left after 5 s:\n" << gone.status().message();
  if (gone.ok()) std::printf("all gone %.0f ms later\n", absl::ToDoubleMilliseconds(*gone));
}

TEST(Runtime, RunsToItsEnd) {
  RuntimeJob job(absl::StrCat(kTwoGroups, "seconds 0.3\n"));
  ASSERT_TRUE(job.WaitReady());
  const v1::GetStatusReply status = job.Status();
  EXPECT_EQ(status.algorithm(), "wait");
  EXPECT_EQ(status.actors_size(), 4);
  ASSERT_EQ(status.nodes_size(), 1);
  EXPECT_EQ(status.nodes(0).cpu_slots_used(), 3);
  const auto ended = job.WaitEnded();
  ASSERT_TRUE(ended.has_value());
  EXPECT_TRUE(ended->ok()) << *ended;
  ExpectAllGone(job);
  EXPECT_EQ(job.controller().WaitFor(absl::Seconds(5))->code, 0);
  EXPECT_EQ(job.node().WaitFor(absl::Seconds(5))->code, 0) << job.Log("node-n0.log");
  EXPECT_THAT(job.Log("train-1.log"), HasSubstr("train-1 says hello"));
  EXPECT_THAT(job.Log("train-1.log"), HasSubstr("train-1 speaks on stdout"));
  EXPECT_THAT(job.Log("train-1.log"), HasSubstr("exited with code 0"));
  std::string record;  // gen-0.EPOCH.json
  for (const auto& file : std::filesystem::directory_iterator(job.run_dir() / "actors")) {
    if (absl::StartsWith(file.path().filename().string(), "gen-0.")) record = ReadFile(file.path()).value_or("");
  }
  EXPECT_THAT(record, HasSubstr("\"asked_to_stop\": true"));
}

TEST(Runtime, AKilledWorkerIsToldInMilliseconds) {
  double best = 1e9;
  for (int i = 0; i < 3; ++i) {
    RuntimeJob job(kTwoGroups);
    ASSERT_TRUE(job.WaitReady());
    const int pid = job.PidOf("train-1");
    const absl::Time killed = absl::Now();
    ASSERT_TRUE(KillProcess(pid, SIGKILL));
    const auto ended = job.WaitEnded();
    const double ms = absl::ToDoubleMilliseconds(absl::Now() - killed);
    best = std::min(best, ms);
    std::printf("kill -9 of a worker to the run's end as its watcher sees it: %.1f ms\n", ms);
    ASSERT_TRUE(ended.has_value());
    EXPECT_EQ(ended->message(), absl::StrCat("train-1 (pid ", pid, " on n0) was killed by signal 9 (Killed)"));
    const v1::ErrorInfo info = GetErrorInfo(*ended);
    EXPECT_EQ(info.origin(), v1::ORIGIN_WORKER_DIED);
    EXPECT_EQ(info.rank(), 1);
    EXPECT_EQ(info.node(), "n0");
    EXPECT_EQ(info.exit_signal(), SIGKILL);
    ASSERT_GT(info.last_lines_size(), 0);
    EXPECT_EQ(info.last_lines(0), "train-1 says hello");
    ExpectAllGone(job);
    EXPECT_EQ(job.controller().WaitFor(absl::Seconds(5))->code, 69);
  }
  EXPECT_LT(best, 200);
}

TEST(Runtime, AnAbortIsToldWithItsLastLines) {
  RuntimeJob job("train 2 1 abort\n");
  const auto ended = job.WaitEnded();
  ASSERT_TRUE(ended.has_value());
  EXPECT_THAT(std::string(ended->message()), HasSubstr("was killed by signal 6"));
  const v1::ErrorInfo info = GetErrorInfo(*ended);
  EXPECT_THAT(std::vector<std::string>(info.last_lines().begin(), info.last_lines().end()),
              ::testing::Contains("something impossible has happened"));
  ExpectAllGone(job);
}

TEST(Runtime, AKilledShimTakesItsWorkerAndIsTold) {
  RuntimeJob job(kTwoGroups);
  ASSERT_TRUE(job.WaitReady());
  const int shim = job.ShimOf("gen-0");
  ASSERT_GT(shim, 0);
  ASSERT_TRUE(KillProcess(shim, SIGKILL));
  const auto ended = job.WaitEnded();
  ASSERT_TRUE(ended.has_value());
  EXPECT_THAT(std::string(ended->message()), HasSubstr("gen-0 (pid "));
  const v1::ErrorInfo info = GetErrorInfo(*ended);
  ASSERT_GT(info.last_lines_size(), 0);
  EXPECT_THAT(info.last_lines(info.last_lines_size() - 1), HasSubstr("the shim of gen-0"));
  ExpectAllGone(job);
}

TEST(Runtime, AKilledNodeAgentIsTold) {
  RuntimeJob job(kTwoGroups);
  ASSERT_TRUE(job.WaitReady());
  ASSERT_TRUE(job.node().Signal(SIGKILL));
  const auto ended = job.WaitEnded();
  ASSERT_TRUE(ended.has_value());
  EXPECT_THAT(std::string(ended->message()), HasSubstr("the node agent of n0 is lost"));
  EXPECT_EQ(GetErrorInfo(*ended).origin(), v1::ORIGIN_NODE_LOST);
  EXPECT_GT(GetErrorInfo(*ended).last_lines_size(), 0);
  ExpectAllGone(job);
}

TEST(Runtime, AKilledControllerLeavesNothing) {
  RuntimeJob job(kTwoGroups);
  ASSERT_TRUE(job.WaitReady());
  ASSERT_TRUE(job.controller().Signal(SIGKILL));
  ExpectAllGone(job);
  EXPECT_EQ(job.node().WaitFor(absl::Seconds(5))->code, 69);
  EXPECT_THAT(job.Log("node-n0.log"), HasSubstr(": ending all actors"));
}

TEST(Runtime, AKilledLauncherIsLoggedAndLeavesNothing) {
  Process launcher = Process::Spawn({.executable = "/bin/sleep", .args = {"1000"}}).value();
  RuntimeJob job(kTwoGroups, {}, {"--cpu-slots", "4"}, launcher.pid());
  ASSERT_TRUE(job.WaitReady());
  launcher.Signal(SIGKILL);
  ExpectAllGone(job);
  launcher.WaitFor(absl::Seconds(5));
  EXPECT_THAT(job.Log("controller.log"), HasSubstr("manta run was killed"));
}

TEST(Runtime, StopRunAndSignalsEndEverything) {
  for (const std::string how : {"call", "SIGINT", "SIGTERM"}) {
    RuntimeJob job(kTwoGroups);
    ASSERT_TRUE(job.WaitReady());
    if (how == "call") {
      EXPECT_TRUE(job.StopRun("Ctrl-C").ok());
    } else {
      ASSERT_TRUE(job.controller().Signal(how == "SIGINT" ? SIGINT : SIGTERM));
    }
    const auto ended = job.WaitEnded();
    ASSERT_TRUE(ended.has_value());
    EXPECT_EQ(ended->code(), absl::StatusCode::kCancelled);
    EXPECT_THAT(std::string(ended->message()), AnyOf(HasSubstr("Ctrl-C"), HasSubstr(how)));
    ExpectAllGone(job);
    EXPECT_EQ(job.controller().WaitFor(absl::Seconds(5))->code, 1);
  }
}

TEST(Runtime, AWorkerThatDoesNotListenIsKilled) {
  RuntimeJob job("train 1 1 deaf\ngen 1 1 child\n");
  ASSERT_TRUE(job.WaitReady());
  EXPECT_EQ(job.Alive().size(), 3u + 2u + 2u + 1u);  // controller, agent, launcher, shims, workers, a worker's own
  EXPECT_TRUE(job.StopRun("enough").ok());
  ExpectAllGone(job);
}

TEST(Runtime, AStoppedWorkerIsMissedByItsBeats) {
  RuntimeJob job(kTwoGroups, {"--actor-timeout", "2.5"});
  ASSERT_TRUE(job.WaitReady());
  const int pid = job.PidOf("gen-0");
  ASSERT_TRUE(KillProcess(pid, SIGSTOP));
  const absl::Time stopped = absl::Now();
  const auto ended = job.WaitEnded();
  ASSERT_TRUE(ended.has_value());
  EXPECT_THAT(std::string(ended->message()), HasSubstr("gen-0 (pid "));
  EXPECT_THAT(std::string(ended->message()), HasSubstr("has not been heard of"));
  EXPECT_LT(absl::Now() - stopped, absl::Seconds(6));
  ExpectAllGone(job);
}

TEST(Runtime, WhatDoesNotStartSaysWhy) {
  struct Case {
    const char* config;
    const char* message;
    const char* last_line;
  };
  for (const Case& c : {Case{"train 2 1 exit 3\n", "exited with code 3", "error: nothing to do here"},
                        Case{"executable /nonexistent/worker\n",
                             "odd-0 did not start on n0: cannot execute /nonexistent/worker: No such file", ""},
                        Case{"train 5 1\n", "train needs 5 CPU slots (5 ranks of 1), 4 registered", ""}}) {
    RuntimeJob job(c.config);
    const auto ended = job.WaitEnded();
    ASSERT_TRUE(ended.has_value());
    EXPECT_THAT(std::string(ended->message()), HasSubstr(c.message));
    if (*c.last_line != '\0') {
      const v1::ErrorInfo info = GetErrorInfo(*ended);
      ASSERT_GT(info.last_lines_size(), 0);
      EXPECT_THAT(info.last_lines(info.last_lines_size() - 1), HasSubstr(c.last_line));
    }
    ExpectAllGone(job);
  }
}

TEST(Runtime, AStrangerIsRefused) {
  RuntimeJob job("train 1 1\n");
  ASSERT_TRUE(job.WaitReady());
  EventLoop loop;
  auto stub = v1::ControllerService::NewStub(rpc::OpenChannel(job.address(), std::string(64, 'a')).value());
  const auto reply = RunToCompletion(loop, rpc::Call(loop, stub->async(), &rpc::AsyncOf<v1::ControllerService>::StopRun,
                                                     {}, {.deadline = absl::Seconds(5)}));
  EXPECT_EQ(reply.status().code(), absl::StatusCode::kUnauthenticated);
  EXPECT_EQ(job.Status().actors_size(), 1);
}

}  // namespace
}  // namespace manta::testing
