// Launcher, shims and workers as real processes, with this test as their agent.
#include "controller/node/shim.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/actor/shim_link.h"
#include "common/actor/thread_stacks.h"
#include "common/actor/zygote.h"
#include "common/base/file.h"
#include "common/base/kill.h"
#include "controller/node/launcher.h"
#include "controller/node/local_processes.h"
#include "controller/node/memory_group.h"
#include "controller/node/stacks.h"
#include "controller/node/state_dir.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace manta::node {
namespace {

using ::testing::HasSubstr;

class ShimTest : public ::testing::Test {
 protected:
  void SetUp() override {
    static int counter = 0;
    dir_ = std::filesystem::path(::testing::TempDir()) / absl::StrCat("shim-test-", getpid(), "-", ++counter);
    std::filesystem::create_directories(dir_ / "logs");
    NewAgent();
  }
  void TearDown() override {
    processes_.reset();  // grace is over soon, or was never meant to be
    for (const auto& [name, pid] : pids_) KillProcess(pid, SIGKILL);
    Await([&] { return ShimNames((dir_ / "state").string()).empty(); }, absl::Seconds(3));
    std::error_code ignored;
    if (!HasFailure()) std::filesystem::remove_all(dir_, ignored);
  }
  // In place of an earlier one, whose sockets close as if it had been killed.
  void NewAgent() {
    processes_.reset();
    state_.reset();
    const int launcher = ForkLauncher((dir_ / "state").string(), 0, nullptr).value();
    state_.emplace(StateDir::Open((dir_ / "state").string()).value());
    processes_ = std::make_unique<LocalProcesses>(loop_, launcher, state_->path(), state_->agent_key());
    processes_->on_report = [this](ShimId, const v1::ShimReport& report) {
      for (const auto& actor : report.actors()) Note(actor);
    };
    processes_->on_gone = [this](ShimId shim, const std::string& why) { gone_[shim] = why; };
  }
  void Note(const v1::ActorReport& actor) {
    if (actor.has_started()) pids_[actor.actor_id()] = actor.pid();
    if (actor.worker().has_ready()) ready_[actor.actor_id()] = actor.worker().ready().address();
    if (actor.has_exited()) exits_[actor.actor_id()] = actor.exited();
    if (actor.has_start_failed()) failed_[actor.actor_id()] = actor.start_failed().message();
  }
  ShimId NewShim(const std::string& name, absl::Duration grace = absl::Seconds(10)) {
    return processes_->StartShim({.name = name, .agent_grace = grace});
  }
  void Start(ShimId shim, const std::string& id, std::vector<std::string> args, bool prefork = false,
             const std::string& variable = "", const v1::Limits& limits = {}) {
    v1::ShimOrder order;
    v1::StartActor* start = order.mutable_start();
    start->set_actor_id(id);
    start->set_epoch(1);
    start->set_executable(std::filesystem::read_symlink("/proc/self/exe").string());
    start->add_args("--worker");
    for (auto& arg : args) start->add_args(std::move(arg));
    start->set_log_path((dir_ / "logs" / (id + ".log")).string());
    (*start->mutable_env())["OWN"] = id;
    if (!variable.empty()) (*start->mutable_env())[variable] = id;
    start->set_prefork(prefork);
    *start->mutable_limits() = limits;
    ASSERT_TRUE(processes_->Send(shim, order));
  }
  void Lease(ShimId shim, absl::Duration ttl) {
    v1::ShimOrder order;
    order.mutable_lease()->set_ttl_ms(absl::ToInt64Milliseconds(ttl));
    EXPECT_TRUE(processes_->Send(shim, order));
  }
  template <typename Condition>
  bool Await(Condition condition, absl::Duration limit = absl::Seconds(10)) {
    const absl::Time until = absl::Now() + limit;
    while (!condition()) {
      if (absl::Now() > until) return false;
      loop_.RunFor(absl::Milliseconds(5));
    }
    return true;
  }
  static bool Runs(int64_t pid) {
    const std::string stat = ReadFile(absl::StrCat("/proc/", pid, "/stat")).value_or("");
    const size_t paren = stat.rfind(')');
    return paren != std::string::npos && stat[paren + 2] != 'Z';
  }
  static int64_t ParentOf(int64_t pid) {
    const std::string stat = ReadFile(absl::StrCat("/proc/", pid, "/stat")).value_or("");
    int64_t parent = -1;
    std::sscanf(stat.c_str() + stat.rfind(')') + 2, "%*c %ld", &parent);
    return parent;
  }
  std::string Log(const std::string& id) { return ReadFile(dir_ / "logs" / (id + ".log")).value_or(""); }

  EventLoop loop_;
  std::filesystem::path dir_;
  std::optional<StateDir> state_;
  std::unique_ptr<LocalProcesses> processes_;
  std::map<std::string, int64_t> pids_;
  std::map<std::string, std::string> ready_, failed_;
  std::map<std::string, v1::ActorExited> exits_;
  std::map<ShimId, std::string> gone_;
};

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

TEST_F(ShimTest, ForkedWorkersAreLikeExecutedOnes) {
  constexpr int kWorkers = 100;
  const ShimId shim = NewShim("a-0.1");
  for (int i = 0; i < kWorkers; ++i) {
    const std::string id = absl::StrCat("a-", i);
    Start(shim, id, {i == 7 ? "brief" : "wait"}, /*prefork=*/true);
    if (i % 10 != 9) continue;
    ASSERT_TRUE(Await([&] { return ready_.size() == static_cast<size_t>(i + 1); }));
  }
  std::set<int64_t> distinct;
  int64_t parent = -1;
  for (const auto& [id, pid] : pids_) {
    distinct.insert(pid);
    EXPECT_EQ(ready_[id], "of " + id);
    if (id == "a-7") continue;
    if (parent < 0) parent = ParentOf(pid);
    EXPECT_EQ(ParentOf(pid), parent);
    EXPECT_EQ(ReadFile(absl::StrCat("/proc/", pid, "/comm")).value(), id + "\n");
  }
  EXPECT_EQ(distinct.size(), static_cast<size_t>(kWorkers));
  EXPECT_EQ(ReadFile(absl::StrCat("/proc/", parent, "/comm")).value(), "manta-shim\n");
  ASSERT_TRUE(Await([&] { return exits_.count("a-7") > 0; }));
  EXPECT_EQ(exits_["a-7"].exit_code(), 6);
  EXPECT_EQ(exits_["a-7"].last_lines(0), "a-7 says hello");
  EXPECT_THAT(Log("a-7"), HasSubstr("a-7 says hello"));
  EXPECT_THAT(Log("a-8"), ::testing::Not(HasSubstr("started cold")));
  KillProcess(pids_["a-8"], SIGKILL);
  ASSERT_TRUE(Await([&] { return exits_.count("a-8") > 0; }));
  EXPECT_EQ(exits_["a-8"].exit_signal(), SIGKILL);

  // Its zygote is killed: those that are there live, and new ones start cold.
  std::ifstream children(absl::StrCat("/proc/", parent, "/task/", parent, "/children"));
  int64_t zygote = -1;
  for (int64_t pid; children >> pid;) {
    if (distinct.count(pid) == 0) zygote = pid;
  }
  ASSERT_GT(zygote, 0);
  KillProcess(zygote, SIGKILL);
  Start(shim, "b-0", {"wait"}, /*prefork=*/true);
  ASSERT_TRUE(Await([&] { return ready_.count("b-0") > 0; }));
  EXPECT_TRUE(Runs(pids_["a-9"]));
  EXPECT_EQ(ParentOf(pids_["b-0"]), parent);
  processes_->KillShim(shim);
  ASSERT_TRUE(Await([&] { return gone_.count(shim) > 0; }));
  for (const auto& [id, pid] : pids_) EXPECT_FALSE(Runs(pid)) << id;
}

TEST_F(ShimTest, AProgramThatCannotBeForkedIsStartedCold) {
  const ShimId shim = NewShim("a-0.1");
  Start(shim, "a-0", {"wait"}, /*prefork=*/true, "THREADED");
  Start(shim, "a-1", {"wait"}, /*prefork=*/true, "THREADED");
  ASSERT_TRUE(Await([&] { return ready_.size() == 2; }));
  EXPECT_THAT(Log("a-0"), HasSubstr("started cold: it has 2 threads"));
}

TEST_F(ShimTest, AWorkerThatEatsTooMuchMemoryIsKilledAndSoSaid) {
  if (const absl::Status groups = ProbeMemoryGroups(); !groups.ok()) {
    GTEST_SKIP() << "cgroup-memory: " << groups.message();
  }
  v1::Limits limits;
  limits.set_memory_bytes(64 << 20);
  for (const bool prefork : {false, true}) {
    const std::string id = prefork ? "a-1" : "a-0";
    Start(NewShim(id + ".1"), id, {"eat"}, prefork, "", limits);
    ASSERT_TRUE(Await([&] { return exits_.count(id) > 0; }));
    EXPECT_EQ(exits_[id].exit_signal(), SIGKILL);
    EXPECT_TRUE(exits_[id].oom());
    EXPECT_GT(exits_[id].peak_bytes(), 32u << 20);
    EXPECT_LE(exits_[id].peak_bytes(), 65u << 20);
    EXPECT_THAT(exits_[id].last_lines(exits_[id].last_lines_size() - 1), HasSubstr("out of memory: " + id));
  }
}

TEST_F(ShimTest, FilesAndDescriptorsAreLimited) {
  v1::Limits limits;
  limits.set_file_bytes(1 << 20);
  limits.set_open_files(64);
  Start(NewShim("a-0.1"), "a-0", {"write"}, false, "", limits);
  ASSERT_TRUE(Await([&] { return exits_.count("a-0") > 0; }));
  EXPECT_EQ(exits_["a-0"].exit_signal(), SIGXFSZ);
  EXPECT_THAT(Log("a-0"), HasSubstr("64 descriptors"));
  limits.set_open_files(1 << 30);
  Start(NewShim("a-1.1"), "a-1", {"wait"}, false, "", limits);
  ASSERT_TRUE(Await([&] { return failed_.count("a-1") > 0; }));
  EXPECT_THAT(failed_["a-1"], HasSubstr("open_files: 1073741824 is above"));
}

TEST_F(ShimTest, AHangingWorkerShowsItsStacks) {
  const ShimId shim = NewShim("a-0.1");
  Start(shim, "a-0", {"hang"});
  ASSERT_TRUE(Await([&] { return ready_.size() == 1; }));
  v1::ShimOrder order;
  order.mutable_worker()->mutable_actor()->set_actor_id("a-0");
  order.mutable_worker()->mutable_actor()->set_epoch(1);
  order.mutable_worker()->mutable_order()->mutable_stacks()->set_reason("no progress for 10 s");
  ASSERT_TRUE(processes_->Send(shim, order));
  const auto count = [this] {
    const std::string log = Log("a-0");
    int found = 0;
    for (size_t at = 0; (at = log.find("stack of thread ", at)) != std::string::npos; ++at) ++found;
    return found;
  };
  ASSERT_TRUE(Await([&] { return count() == 2; })) << Log("a-0");
  EXPECT_THAT(Log("a-0"), HasSubstr("the stacks of all threads follow: no progress for 10 s"));
  EXPECT_TRUE(Runs(pids_["a-0"]));

  std::string outside;
  ReadStacks(loop_, pids_["a-0"], [&](std::string text) { outside = std::move(text); });
  ASSERT_TRUE(Await([&] { return !outside.empty(); }, absl::Seconds(15)));
  EXPECT_THAT(outside, HasSubstr(absl::StrCat("thread ", pids_["a-0"], " (")));
  EXPECT_THAT(outside, HasSubstr(" state S in "));
}

TEST_F(ShimTest, StartsByTheSecond) {
  constexpr int kStarts = 50;
  const absl::Time begin = absl::Now();
  for (int i = 0; i < kStarts; ++i) {
    const std::string id = absl::StrCat("a-", i);
    Start(NewShim(id + ".1"), id, {"wait"});
  }
  ASSERT_TRUE(Await([&] { return ready_.size() == kStarts; }, absl::Seconds(60)));
  std::printf("%.0f workers started a second\n", kStarts / absl::ToDoubleSeconds(absl::Now() - begin));
}

// ---- The worker

int Work(const std::string& mode) {
  EventLoop loop;
  auto link = actor::ShimLink::FromEnvironment();
  if (link == nullptr) return 9;
  int code = 0;
  link->Watch(
      loop,
      [&](const v1::WorkerOrder& order) {
        std::fprintf(stderr, "told to stop: %s\n", order.stop().reason().c_str());
        code = 5;
        loop.Stop();
      },
      [&] { loop.Stop(); });
  std::fprintf(stderr, "%s says hello\n", getenv("OWN"));
  if (mode == "eat") {
    for (std::vector<std::string> eaten;;) eaten.emplace_back(size_t{1} << 20, 'x');
  }
  if (mode == "write") {
    rlimit limit{};
    getrlimit(RLIMIT_NOFILE, &limit);
    std::fprintf(stderr, "%d descriptors\n", static_cast<int>(limit.rlim_cur));
    std::ofstream file(absl::StrCat(::testing::TempDir(), "/written.", getpid()));
    unlink(absl::StrCat(::testing::TempDir(), "/written.", getpid()).c_str());
    for (int i = 0; i < 100; ++i) file << std::string(64 << 10, 'x') << std::flush;
  }
  if (mode == "deaf") signal(SIGTERM, SIG_IGN);
  v1::WorkerReport report;
  std::string address = absl::StrCat("of ", getenv("OWN"));
  if (mode == "child") {
    const pid_t child = fork();
    if (child == 0) {
      setsid();
      while (true) pause();
    }
    address = absl::StrCat(child);
  }
  if (mode == "hang") {
    actor::InstallStackHandler();
    std::thread([] { absl::SleepFor(absl::Hours(1)); }).detach();
  }
  report.mutable_ready()->set_address(address);
  link->Send(report);
  if (mode == "hang") absl::SleepFor(absl::Hours(1));
  if (mode == "brief") {
    loop.RunFor(absl::Milliseconds(400));
    return 6;
  }
  loop.Run();
  return code;
}

}  // namespace
}  // namespace manta::node

int main(int argc, char** argv) {
  if (getenv("THREADED") != nullptr) std::thread([] { absl::SleepFor(absl::Seconds(100)); }).detach();
  if (auto forked = manta::actor::MaybeServeAsZygote()) return manta::node::Work(forked->at(2));
  if (argc == 3 && std::string(argv[1]) == "--worker") return manta::node::Work(argv[2]);
  if (argc == 3 && std::string(argv[1]) == "--launcher") return manta::node::LauncherMain(argv[2], argc, argv);
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
