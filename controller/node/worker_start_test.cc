// How workers start, what they may use, and what they show when they hang.

#include <signal.h>
#include <unistd.h>

#include <fstream>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "common/base/file.h"
#include "controller/node/memory_group.h"
#include "controller/node/shim_fixture_for_test.h"
#include "controller/node/stacks.h"
#include "gmock/gmock.h"

namespace manta::node {
namespace {

using ::testing::HasSubstr;

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

  // What it writes is part of the answer, and no debugger stops it for that.
  std::string answer;
  const absl::Time asked = absl::Now();
  ReadStacks(loop_,
             {.pid = pids_["a-0"],
              .log_path = (dir_ / "logs" / "a-0.log").string(),
              .log_begin = static_cast<int64_t>(Log("a-0").size())},
             [&](std::string text) { answer = std::move(text); });
  ASSERT_TRUE(processes_->Send(shim, order));
  ASSERT_TRUE(Await([&] { return !answer.empty(); }, absl::Seconds(15)));
  EXPECT_LT(absl::Now() - asked, absl::Seconds(4));
  EXPECT_THAT(answer, ::testing::StartsWith("stack of thread "));
  EXPECT_THAT(answer, HasSubstr("seen from outside:\n"));
  EXPECT_THAT(answer, HasSubstr(absl::StrCat("thread ", pids_["a-0"], " (")));
  EXPECT_THAT(answer, HasSubstr(" state S in "));
  EXPECT_THAT(answer, ::testing::Not(HasSubstr("[New LWP")));
}

TEST_F(ShimTest, AProgramThatWritesNoStacksIsLookedAtFromOutsideAndGoesOn) {
  Start(NewShim("a-0.1"), "a-0", {"wait"});
  ASSERT_TRUE(Await([&] { return ready_.size() == 1; }));
  std::string answer;
  ReadStacks(loop_, {.pid = pids_["a-0"], .log_path = (dir_ / "logs" / "a-0.log").string(), .log_begin = 0},
             [&](std::string text) { answer = std::move(text); });
  ASSERT_TRUE(Await([&] { return !answer.empty(); }, absl::Seconds(15)));
  EXPECT_THAT(answer, ::testing::StartsWith(absl::StrCat("thread ", pids_["a-0"], " (")));
  const std::string stat = ReadFile(absl::StrCat("/proc/", pids_["a-0"], "/stat")).value_or("");
  EXPECT_EQ(stat[stat.rfind(')') + 2], 'S') << "a debugger has left it stopped";
}

TEST_F(ShimTest, AWorkerThatComputesHasItsBeatSaidAgainAndASilentOneHasNot) {
  Start(NewShim("a-0.1"), "a-0", {"compute"});
  Start(NewShim("a-1.1"), "a-1", {"silent"});
  ASSERT_TRUE(Await([&] { return beats_["a-0"].size() >= 3; }, absl::Seconds(15)));
  EXPECT_EQ(beats_["a-0"].back().completed(), 17u);
  EXPECT_EQ(beats_["a-1"].size(), 1u);
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

}  // namespace
}  // namespace manta::node
