// Callers find actors by name, follow them through restarts, and are told at once, and why, when one has died.
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/actor/client.h"
#include "common/actor/group_handle.h"
#include "common/base/file.h"
#include "common/base/kill.h"
#include "common/base/status.h"
#include "common/call/core/outcome.h"
#include "controller/node/process.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/build_dir.h"
#include "tests/testing/launched_cluster.h"

namespace manta::testing {
namespace {

using ::testing::HasSubstr;

const actor::CallOptions kSoon{.deadline = absl::Seconds(10)};

class Names : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    bin_ = BuildDir() / "bin";
    auto cluster = LaunchedCluster::Launch(bin_, "names_test", 16);
    ASSERT_TRUE(cluster.ok()) << cluster.status();
    cluster_ = cluster->release();
  }
  static void TearDownTestSuite() {
    delete cluster_;
    cluster_ = nullptr;
  }
  void SetUp() override {
    ASSERT_NE(cluster_, nullptr);
    client_ = actor::Client::Create({.token = cluster_->token(), .head = [] { return cluster_->address(); }}).value();
  }

  static v1::GroupReply Start(const std::string& role, int ranks, v1::RestartPolicy::Kind policy,
                              const std::string& name = "") {
    v1::GroupRequest request;
    request.set_role(role);
    request.set_name(name);
    request.set_executable((bin_ / "named_actor").string());
    request.mutable_restart()->set_kind(policy);
    request.mutable_restart()->set_backoff_ms(100);
    request.mutable_restart()->set_max_restarts(-1);
    request.mutable_placement()->add_bundles()->set_cpu_slots(1);
    request.mutable_placement()->set_repeat(ranks);
    request.mutable_placement()->set_deadline_ms(5000);
    auto reply = cluster_->CreateGroup(request);
    EXPECT_TRUE(reply.ok()) << reply.status();
    return reply.value_or(v1::GroupReply());
  }
  // Kills the process and returns how long the call that is under way then took to end.
  static absl::Duration KillDuringCall(const actor::ActorHandle& handle, int64_t pid, absl::Status* status) {
    absl::Time ended;
    std::thread caller([&] {
      *status = handle.CallBytes("hang", "", kSoon).status();
      ended = absl::Now();
    });
    absl::SleepFor(absl::Milliseconds(300));
    const absl::Time killed = absl::Now();
    EXPECT_TRUE(KillProcess(pid, SIGKILL));
    caller.join();
    return ended - killed;
  }

  static std::filesystem::path bin_;
  static LaunchedCluster* cluster_;
  std::unique_ptr<actor::Client> client_;
};
std::filesystem::path Names::bin_;
LaunchedCluster* Names::cluster_ = nullptr;

void ExpectSignalNine(const absl::Status& status, absl::Duration took) {
  std::printf("kill -9 to the caller's error: %.0f ms: %s\n", absl::ToDoubleMilliseconds(took),
              std::string(status.message()).c_str());
  EXPECT_LT(took, absl::Milliseconds(200));
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("signal 9"));
  const v1::ErrorInfo info = GetErrorInfo(status);
  EXPECT_EQ(info.origin(), v1::ORIGIN_WORKER_DIED);
  EXPECT_EQ(info.exit_signal(), 9);
  EXPECT_EQ(info.outcome(), v1::CALL_OUTCOME_UNKNOWN);
  EXPECT_THAT(info.last_lines(), ::testing::Contains(HasSubstr("the last words of")));
}

TEST_F(Names, AKilledActorsCallerIsToldWithin200MillisecondsAndWhy) {
  const v1::GroupReply group = Start("victim", 1, v1::RestartPolicy::FAIL_JOB);
  absl::Status status;
  const absl::Duration took = KillDuringCall(client_->Actor("victim"), group.ranks(0).pid(), &status);
  ExpectSignalNine(status, took);
  // It does not come back: no call waits for it.
  const absl::Time before = absl::Now();
  const absl::Status next = client_->Actor("victim").CallBytes("who", "", kSoon).status();
  EXPECT_LT(absl::Now() - before, absl::Seconds(1));
  EXPECT_THAT(std::string(next.message()), HasSubstr("signal 9"));
  EXPECT_EQ(call::OutcomeOf(next), v1::CALL_OUTCOME_NOT_STARTED) << next;
  EXPECT_TRUE(cluster_->RemoveGroup("victim").ok());
}

TEST_F(Names, SoIsOneThatKnowsItsAddressOnly) {
  const v1::GroupReply group = Start("addressed", 1, v1::RestartPolicy::FAIL_JOB);
  const v1::ActorInfo& rank = group.ranks(0);
  absl::Status status;
  const absl::Duration took =
      KillDuringCall(client_->ActorAt({rank.actor_id(), rank.epoch(), rank.address()}), group.ranks(0).pid(), &status);
  ExpectSignalNine(status, took);
  EXPECT_TRUE(cluster_->RemoveGroup("addressed").ok());
}

TEST_F(Names, HandlesFollowTheirActorsThroughRestarts) {
  const v1::GroupReply group = Start("phoenix", 2, v1::RestartPolicy::RESTART_GROUP, "bird");
  const actor::ActorHandle second = client_->Actor("bird", 1);
  int64_t pid = group.ranks(1).pid();
  EXPECT_EQ(second.CallBytes("who", "", kSoon).value_or(""), absl::StrCat(pid));
  for (int round = 0; round < 3; ++round) {
    absl::Status status;
    const absl::Duration took = KillDuringCall(second, pid, &status);
    ExpectSignalNine(status, took);
    const auto reply = second.CallBytes("who", "", kSoon);  // idempotent: waits for the new one
    ASSERT_TRUE(reply.ok()) << reply.status();
    int64_t now = 0;
    ASSERT_TRUE(absl::SimpleAtoi(*reply, &now));
    EXPECT_NE(now, pid);
    pid = now;
  }
  EXPECT_EQ(client_->Group("bird", absl::Seconds(5))->size(), 2);
  EXPECT_TRUE(cluster_->RemoveGroup("phoenix").ok());
  const absl::Time before = absl::Now();
  EXPECT_FALSE(second.CallBytes("who", "", kSoon).ok());
  EXPECT_LT(absl::Now() - before, absl::Seconds(2)) << "its group is gone, and that is known";
}

TEST_F(Names, UnknownNamesAreWaitedForAsLongAsToldAndNoLonger) {
  const absl::Time before = absl::Now();
  const auto nobody = client_->Resolve("nobody", absl::Milliseconds(300));
  EXPECT_EQ(nobody.status().code(), absl::StatusCode::kNotFound) << nobody.status();
  EXPECT_GE(absl::Now() - before, absl::Milliseconds(290));
  absl::StatusOr<std::vector<actor::ActorAddress>> later = absl::UnknownError("");
  std::thread waits([&] { later = client_->Resolve("later", absl::Seconds(20)); });
  absl::SleepFor(absl::Milliseconds(100));
  const v1::GroupReply group = Start("late", 1, v1::RestartPolicy::FAIL_JOB, "later");
  waits.join();
  ASSERT_TRUE(later.ok()) << later.status();
  EXPECT_EQ(later->at(0).address, group.ranks(0).address());
  EXPECT_TRUE(cluster_->RemoveGroup("late").ok());
}

// `manta call` is a client like the others.
TEST_F(Names, TheCommandLineCallsAsOthersDo) {
  const v1::GroupReply group = Start("asked", 1, v1::RestartPolicy::FAIL_JOB);
  const std::filesystem::path out = cluster_->dir() / "call.out";
  const auto call = [&](std::vector<std::string> args) {
    const int fd = open(out.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    args.insert(args.begin(), {"call", "--dir", cluster_->dir().string()});
    auto process =
        Process::Spawn({.executable = (bin_ / "manta").string(), .args = args, .stdout_fd = fd, .stderr_fd = fd});
    close(fd);
    return std::move(process).value();
  };
  Process who = call({"asked", "who", "--json"});
  ASSERT_TRUE(who.WaitFor(absl::Seconds(20)).has_value());
  const std::string epoch = absl::StrCat("\"epoch\":", group.epoch());
  EXPECT_THAT(ReadFile(out).value(), HasSubstr(epoch));
  EXPECT_THAT(ReadFile(out).value(), HasSubstr(absl::StrCat("\"reply\":\"", group.ranks(0).pid(), "\"")));
  EXPECT_THAT(ReadFile(out).value(), HasSubstr("asked-0\""));

  Process hang = call({"asked", "hang"});
  absl::SleepFor(absl::Milliseconds(700));
  ASSERT_TRUE(KillProcess(group.ranks(0).pid(), SIGKILL));
  const auto ended = hang.WaitFor(absl::Seconds(20));
  ASSERT_TRUE(ended.has_value());
  EXPECT_NE(ended->code, 0);
  EXPECT_THAT(ReadFile(out).value(), HasSubstr("signal 9"));
  EXPECT_TRUE(cluster_->RemoveGroup("asked").ok());
}

}  // namespace
}  // namespace manta::testing
