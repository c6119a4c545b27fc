// Groups of a user's own as a job, on the head's real core, against fake agents in simulated time.
#include "controller/actors/actor_groups.h"

#include "controller/core/fake_node.h"
#include "controller/core/memory_journal.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace manta::controller {
namespace {

using ::testing::HasSubstr;

class ActorGroupsTest : public ::testing::Test {
 protected:
  ActorGroupsTest() { Make({}); }
  ~ActorGroupsTest() override {
    cluster_.reset();
    core_.reset();
  }
  void Make(std::vector<core::JournalEntry> rows) {
    cluster_.reset();
    core_ = std::make_unique<core::Core>(*loop_, journal_, nullptr,
                                         core::CoreOptions{.incarnation = ++incarnation_, .run_dir = "/run"},
                                         std::move(rows));
    core_->AddLocalJob("run", "/run", 0);
    cluster_ = std::make_unique<JobCluster>(*loop_, *core_, JobCluster::Options());
    cluster_->OnGroupFailed([this](const Group&, const absl::Status& status) { stop_->Cancel(status); });
    EXPECT_TRUE(node_->Join(*core_).ok());
  }
  static config::ActorGroupConfig GroupOf(const std::string& role, bool plain = false) {
    config::ActorGroupConfig group;
    group.role = role;
    group.executable = "/bin/" + role;
    group.working_dir = "/work";
    group.plain = plain;
    return group;
  }
  void TearDown() override { Leave(); }
  // The job's code ends, what it waits for or not.
  void Leave() {
    stop_->Cancel(absl::CancelledError("the test is over"));
    loop_->RunFor(absl::Milliseconds(1));
    stop_.emplace();
  }
  // Runs the job of these groups until it is over.
  void Begin(std::vector<config::ActorGroupConfig> groups) {
    const RunContext context{
        .loop = loop_.get(), .cluster = cluster_.get(), .events = &events_, .stop = stop_->token(), .job = "run"};
    result_.reset();
    Spawn(*loop_, Drive(context, std::move(groups)), [this](const absl::Status& status) { result_ = status; });
    loop_->RunFor(absl::Seconds(1));
  }
  static Task<absl::Status> Drive(RunContext context, std::vector<config::ActorGroupConfig> groups) {
    const auto started = co_await ActorGroups::Start(context, std::move(groups));
    if (!started.ok()) co_return started.status();
    co_return co_await (*started)->WaitEnded(context.stop);
  }
  std::string Told() const {
    std::string text;
    for (const v1::RunEvent& event : events_.After(0, 100)) text += event.ShortDebugString() + "\n";
    return text;
  }

  std::unique_ptr<EventLoop> loop_ = EventLoop::Simulated();
  core::MemoryJournal journal_{*loop_};
  std::shared_ptr<core::FakeNode> node_ = std::make_shared<core::FakeNode>(*loop_, "n0", 4);
  uint64_t incarnation_ = 0;
  std::unique_ptr<core::Core> core_;
  std::unique_ptr<JobCluster> cluster_;
  RunEvents events_{1000, 0};
  std::optional<CancelSource> stop_{std::in_place};
  std::optional<absl::Status> result_;
};

TEST_F(ActorGroupsTest, TheJobIsOverWhenItsProgramsHaveEndedWell) {
  Begin({GroupOf("first", true), GroupOf("second", true)});
  ASSERT_EQ(node_->started.size(), 2u);
  EXPECT_EQ(node_->started[0].env().at("MANTA_WORKING_DIR"), "/work");
  EXPECT_FALSE(result_.has_value());
  node_->Exit("first-0", node_->EpochOf("first-0"), 0, 0);
  loop_->RunFor(absl::Seconds(1));
  EXPECT_FALSE(result_.has_value());
  node_->Exit("second-0", node_->EpochOf("second-0"), 0, 0);
  loop_->RunFor(absl::Seconds(1));
  ASSERT_TRUE(result_.has_value());
  EXPECT_TRUE(result_->ok()) << *result_;
  EXPECT_THAT(Told(), HasSubstr("first: ready: first-0 (pid 1000) on n0"));
  EXPECT_THAT(Told(), HasSubstr("second: has ended"));
}

TEST_F(ActorGroupsTest, AProgramThatFailsEndsTheJobWithItsCode) {
  Begin({GroupOf("work", true), GroupOf("counter")});
  node_->Exit("work-0", node_->EpochOf("work-0"), 3, 0);
  loop_->RunFor(absl::Seconds(1));
  ASSERT_TRUE(result_.has_value());
  EXPECT_THAT(std::string(result_->message()), HasSubstr("exited with code 3"));
}

TEST_F(ActorGroupsTest, ARestartIsToldAndGoesOn) {
  config::ActorGroupConfig counter = GroupOf("counter");
  counter.restart.policy = "replace_one";
  Begin({counter});
  node_->Exit("counter-0", node_->EpochOf("counter-0"), -1, 9);
  loop_->RunFor(absl::Seconds(3));
  EXPECT_FALSE(result_.has_value());
  EXPECT_THAT(Told(), HasSubstr("counter: started again: counter-0 (pid 1000 on n0) was killed by signal 9"));
  EXPECT_THAT(Told(), HasSubstr("counter: ready again"));
}

TEST_F(ActorGroupsTest, WhatCannotStartIsAnErrorOfTheJob) {
  config::ActorGroupConfig big = GroupOf("big");
  big.cpus = 64;
  Begin({big});
  ASSERT_TRUE(result_.has_value());
  EXPECT_EQ(result_->code(), absl::StatusCode::kFailedPrecondition) << *result_;
}

TEST_F(ActorGroupsTest, DetachedGroupsStayWhenTheJobIsOver) {
  config::ActorGroupConfig service = GroupOf("service");
  service.detached = true;
  Begin({service});
  ASSERT_TRUE(result_.has_value());
  EXPECT_TRUE(result_->ok());
  EXPECT_TRUE(RunToCompletion(*loop_, cluster_->StopAll(absl::Seconds(1))).ok());
  EXPECT_TRUE(node_->stopped.empty());
}

TEST_F(ActorGroupsTest, TheNextControllerTakesThemBack) {
  Begin({GroupOf("counter")});
  ASSERT_EQ(node_->started.size(), 1u);
  Leave();
  node_->Forsake();
  core_.reset();
  Make(journal_.disk().Rows());
  Begin({GroupOf("counter")});
  EXPECT_EQ(node_->started.size(), 1u);
  EXPECT_FALSE(result_.has_value());
  EXPECT_THAT(Told(), HasSubstr("counter: runs on: counter-0"));
}

TEST(GroupRequestTest, ClientsFindItByItsJobWhereItHasNoName) {
  config::ActorGroupConfig group{.role = "counter"};
  EXPECT_EQ(GroupRequestOf(group, "run").name(), "counter");
  EXPECT_EQ(GroupRequestOf(group, "counters").name(), "counters/counter");
  group.name = "sum";
  EXPECT_EQ(GroupRequestOf(group, "counters").name(), "sum");
  group.restart.policy = "restart_group";
  group.strategy = "strict_spread";
  group.start_timeout_s = 1.5;
  const v1::GroupRequest request = GroupRequestOf(group, "counters");
  EXPECT_EQ(request.restart().kind(), v1::RestartPolicy::RESTART_GROUP);
  EXPECT_EQ(request.placement().strategy(), v1::STRATEGY_STRICT_SPREAD);
  EXPECT_EQ(request.start_deadline_ms(), 1500);
}

}  // namespace
}  // namespace manta::controller
