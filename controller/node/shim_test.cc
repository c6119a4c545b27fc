// Shims and their workers under an agent that ends, comes back, or is a stranger.
#include "controller/node/shim.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "controller/node/shim_fixture_for_test.h"
#include "gmock/gmock.h"

namespace manta::node {
namespace {

using ::testing::HasSubstr;

TEST_F(ShimTest, OneShimHoldsSeveralWorkers) {
  setenv("SOME_SECRET", "hidden", 1);
  const ShimId shim = NewShim("a-0.1");
  Start(shim, "a-0", {"wait"});
  Start(shim, "a-1", {"wait"});
  ASSERT_TRUE(Await([&] { return ready_.size() == 2; }));
  EXPECT_EQ(ready_["a-1"], "of a-1");
  EXPECT_EQ(ParentOf(pids_["a-0"]), ParentOf(pids_["a-1"]));
  EXPECT_THAT(ReadFile(absl::StrCat("/proc/", ParentOf(pids_["a-0"]), "/comm")).value(), HasSubstr("manta-shim"));
  const std::string environment = ReadFile(absl::StrCat("/proc/", pids_["a-0"], "/environ")).value();
  EXPECT_THAT(environment, HasSubstr("OWN=a-0"));
  EXPECT_THAT(environment, ::testing::Not(HasSubstr("hidden")));

  v1::ShimOrder order;  // by its link, which the worker answers with its own exit code
  order.mutable_worker()->mutable_actor()->set_actor_id("a-0");
  order.mutable_worker()->mutable_actor()->set_epoch(1);
  order.mutable_worker()->mutable_order()->mutable_stop()->set_reason("enough");
  ASSERT_TRUE(processes_->Send(shim, order));
  ASSERT_TRUE(Await([&] { return exits_.count("a-0") > 0; }));
  EXPECT_EQ(exits_["a-0"].exit_code(), 5);
  EXPECT_FALSE(exits_["a-0"].asked_to_stop());
  EXPECT_THAT(std::vector<std::string>(exits_["a-0"].last_lines().begin(), exits_["a-0"].last_lines().end()),
              ::testing::Contains("told to stop: enough"));
  EXPECT_TRUE(Runs(pids_["a-1"]));
  EXPECT_TRUE(gone_.empty());
  order.mutable_stop()->set_actor_id("a-1");
  order.mutable_stop()->set_epoch(1);
  order.mutable_stop()->set_grace_ms(1000);
  ASSERT_TRUE(processes_->Send(shim, order));
  ASSERT_TRUE(Await([&] { return !gone_.empty(); }));
  EXPECT_EQ(exits_["a-1"].exit_signal(), SIGTERM);
  EXPECT_TRUE(exits_["a-1"].asked_to_stop());
  EXPECT_THAT(ReadFile(dir_ / "actors" / "a-1.1.json").value_or(""), ::testing::Not(HasSubstr("nothing")));
  EXPECT_TRUE(ShimNames(state_->path()).empty());
}

TEST_F(ShimTest, WhatCannotBeExecutedSaysWhy) {
  const ShimId shim = NewShim("a-0.1");
  v1::ShimOrder order;
  order.mutable_start()->set_actor_id("a-0");
  order.mutable_start()->set_epoch(1);
  order.mutable_start()->set_executable("/nonexistent/worker");
  order.mutable_start()->set_log_path((dir_ / "logs" / "a-0.log").string());
  ASSERT_TRUE(processes_->Send(shim, order));
  ASSERT_TRUE(Await([&] { return gone_.count(shim) > 0; }));
  EXPECT_THAT(failed_["a-0"], HasSubstr("cannot execute /nonexistent/worker: No such file"));
}

TEST_F(ShimTest, AnAgentThatIsRestartedTakesItsWorkersOver) {
  const ShimId shim = NewShim("a-0.1");
  Start(shim, "a-0", {"wait"});
  const ShimId brief = NewShim("b-0.1");
  Start(brief, "b-0", {"brief"});
  ASSERT_TRUE(Await([&] { return ready_.size() == 2; }));
  const absl::Time killed = absl::Now();
  processes_.reset();
  absl::SleepFor(absl::Seconds(1));  // b-0 ends meanwhile
  EXPECT_TRUE(Runs(pids_["a-0"]));
  EXPECT_FALSE(Runs(pids_["b-0"]));
  NewAgent();
  std::optional<Recovered> recovered;
  processes_->Recover([&](Recovered r) { recovered = std::move(r); });
  ASSERT_TRUE(Await([&] { return recovered.has_value(); }));
  std::printf("adopted %.0f ms after the kill\n", absl::ToDoubleMilliseconds(absl::Now() - killed));
  ASSERT_EQ(recovered->shims.size(), 1u);
  ASSERT_EQ(recovered->shims[0].snapshots.actors_size(), 1);
  const v1::ActorReport& snapshot = recovered->shims[0].snapshots.actors(0);
  EXPECT_EQ(snapshot.actor_id(), "a-0");
  EXPECT_EQ(snapshot.pid(), pids_["a-0"]);
  EXPECT_EQ(snapshot.snapshot().ready().address(), "of a-0");
  EXPECT_GT(snapshot.snapshot().started_unix_ms(), 0);
  ASSERT_EQ(recovered->exits.size(), 2u);  // that of a-0 is for the case that its shim is killed
  EXPECT_EQ(recovered->exits[0].actor_id(), "a-0");
  EXPECT_EQ(recovered->exits[1].exited().exit_code(), 6);
  RemoveExit(state_->path(), "b-0", 1);
  EXPECT_EQ(ReadExits(state_->path()).size(), 1u);
  KillProcess(pids_["a-0"], SIGKILL);
  ASSERT_TRUE(Await([&] { return exits_.count("a-0") > 0; }));
  EXPECT_EQ(exits_["a-0"].exit_signal(), SIGKILL);
}

TEST_F(ShimTest, AShimThatIsKilledWithoutAnAgentIsToldToTheNext) {
  Start(NewShim("a-0.1"), "a-0", {"wait"});
  ASSERT_TRUE(Await([&] { return ready_.size() == 1; }));
  const int64_t shim = ParentOf(pids_["a-0"]);
  processes_.reset();
  ASSERT_TRUE(KillProcess(shim, SIGKILL));
  ASSERT_TRUE(Await([&] { return !Runs(pids_["a-0"]); }));
  NewAgent();
  std::optional<Recovered> recovered;
  processes_->Recover([&](Recovered r) { recovered = std::move(r); });
  ASSERT_TRUE(Await([&] { return recovered.has_value(); }));
  EXPECT_TRUE(recovered->shims.empty());
  ASSERT_EQ(recovered->exits.size(), 1u);
  EXPECT_EQ(recovered->exits[0].actor_id(), "a-0");
  EXPECT_EQ(recovered->exits[0].exited().exit_signal(), SIGKILL);
}

TEST_F(ShimTest, WithoutAnAgentWorkersEndWithinTheGrace) {
  const ShimId shim = NewShim("a-0.1", absl::Milliseconds(400));
  Start(shim, "a-0", {"wait"});
  ASSERT_TRUE(Await([&] { return ready_.size() == 1; }));
  processes_.reset();
  absl::SleepFor(absl::Milliseconds(200));
  EXPECT_TRUE(Runs(pids_["a-0"]));
  EXPECT_TRUE(Await([&] { return !Runs(pids_["a-0"]); }, absl::Seconds(3)));
  EXPECT_THAT(Log("a-0"), HasSubstr("the node agent is gone"));
}

TEST_F(ShimTest, AStrangerIsNotAnAgent) {
  const ShimId shim = NewShim("a-0.1");
  Start(shim, "a-0", {"wait"});
  ASSERT_TRUE(Await([&] { return ready_.size() == 1; }));
  LocalProcesses stranger(loop_, ForkLauncher("", 0, nullptr).value(), state_->path(), std::string(32, 'x'));
  std::string why;
  stranger.on_gone = [&](ShimId, const std::string& w) { why = w; };
  stranger.on_report = [&](ShimId, const v1::ShimReport&) { ADD_FAILURE() << "a stranger was answered"; };
  std::optional<Recovered> recovered;
  stranger.Recover([&](Recovered r) { recovered = std::move(r); });
  ASSERT_TRUE(Await([&] { return recovered.has_value(); }));
  EXPECT_TRUE(recovered->shims.empty());
  EXPECT_TRUE(Runs(pids_["a-0"]));
  Lease(shim, absl::Seconds(10));  // still its agent's
}

TEST_F(ShimTest, ALeaseThatRunsOutEndsItsWorkers) {
  const ShimId shim = NewShim("a-0.1");
  Start(shim, "a-0", {"deaf"});
  ASSERT_TRUE(Await([&] { return ready_.size() == 1; }));
  for (int i = 0; i < 5; ++i) {
    Lease(shim, absl::Milliseconds(500));
    loop_.RunFor(absl::Milliseconds(200));
  }
  EXPECT_TRUE(Runs(pids_["a-0"]));
  const absl::Time last = absl::Now();
  Lease(shim, absl::Milliseconds(300));
  ASSERT_TRUE(Await([&] { return exits_.count("a-0") > 0; }, absl::Seconds(3)));
  EXPECT_GE(absl::Now() - last, absl::Milliseconds(300));
  EXPECT_TRUE(exits_["a-0"].fenced());
  EXPECT_EQ(exits_["a-0"].exit_signal(), SIGKILL);
  EXPECT_THAT(Log("a-0"), HasSubstr("the lease of this node has run out"));
}

TEST_F(ShimTest, ALeaseEndsWithoutAnAgentToo) {
  const ShimId shim = NewShim("a-0.1");
  Start(shim, "a-0", {"wait"});
  ASSERT_TRUE(Await([&] { return ready_.size() == 1; }));
  Lease(shim, absl::Milliseconds(500));
  loop_.RunFor(absl::Milliseconds(50));
  processes_.reset();
  EXPECT_TRUE(Await([&] { return !Runs(pids_["a-0"]); }, absl::Seconds(2)));
  EXPECT_TRUE(Await([&] { return ReadExits(state_->path()).at(0).exited().fenced(); }));
}

TEST_F(ShimTest, AKilledShimTakesItsWorkersAndTheirs) {
  const ShimId shim = NewShim("a-0.1");
  Start(shim, "a-0", {"child"});
  ASSERT_TRUE(Await([&] { return ready_.size() == 1; }));
  int64_t child = 0;
  ASSERT_TRUE(absl::SimpleAtoi(ready_["a-0"], &child));
  ASSERT_TRUE(Runs(child));
  const absl::Time killed = absl::Now();
  processes_->KillShim(shim);
  ASSERT_TRUE(Await([&] { return gone_.count(shim) > 0; }));
  std::printf("told %.1f ms after the kill\n", absl::ToDoubleMilliseconds(absl::Now() - killed));
  EXPECT_EQ(gone_[shim], "was killed by signal 9 (Killed)");
  EXPECT_FALSE(Runs(pids_["a-0"]));
  EXPECT_TRUE(Await([&] { return !Runs(child); }, absl::Seconds(2)));
}

TEST_F(ShimTest, AKilledLauncherIsReplaced) {
  const ShimId shim = NewShim("a-0.1");
  Start(shim, "a-0", {"wait"});
  ASSERT_TRUE(Await([&] { return ready_.size() == 1; }));
  const int64_t launcher = ParentOf(ParentOf(pids_["a-0"]));
  ASSERT_EQ(ReadFile(absl::StrCat("/proc/", launcher, "/comm")).value(), "manta-launcher\n");
  KillProcess(launcher, SIGKILL);
  loop_.RunFor(absl::Milliseconds(300));
  EXPECT_TRUE(Runs(pids_["a-0"]));
  Start(NewShim("a-1.1"), "a-1", {"wait"});
  ASSERT_TRUE(Await([&] { return ready_.size() == 2; }));
  processes_->KillShim(shim);
  ASSERT_TRUE(Await([&] { return gone_.count(shim) > 0; }));
  EXPECT_FALSE(Runs(pids_["a-0"]));
}

}  // namespace
}  // namespace manta::node
