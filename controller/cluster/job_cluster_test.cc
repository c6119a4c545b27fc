// An algorithm's view of the cluster, on the head's real core, against fake agents in simulated time.
#include "controller/cluster/job_cluster.h"

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "controller/core/fake_node.h"
#include "controller/core/memory_journal.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace manta::controller {
namespace {

using core::FakeNode;
using ::testing::HasSubstr;

class JobClusterTest : public ::testing::Test {
 protected:
  ~JobClusterTest() override {
    cluster_.reset();
    core_.reset();
  }
  void Make(int expected_nodes = 1) {
    core_ = std::make_unique<core::Core>(*loop_, journal_, nullptr,
                                         core::CoreOptions{.run_dir = "/nonexistent", .expected_nodes = expected_nodes},
                                         std::vector<core::JournalEntry>());
    cluster_ = std::make_unique<JobCluster>(*loop_, *core_, JobCluster::Options());
    cluster_->OnGroupFailed(
        [this](const Group& group, const absl::Status& status) { failures_.emplace_back(group.role(), status); });
  }
  std::shared_ptr<FakeNode> Node(const std::string& name, int cpu_slots, int gpus = 0) {
    auto node = std::make_shared<FakeNode>(*loop_, name, cpu_slots, gpus);
    EXPECT_TRUE(node->Join(*core_).ok());
    return node;
  }
  absl::StatusOr<std::shared_ptr<Group>> Start(GroupSpec spec) {
    spec.executable = "/bin/worker";
    return RunToCompletion(*loop_, cluster_->StartGroup(std::move(spec)));
  }
  absl::Status Stop(std::shared_ptr<Group> group) {
    return RunToCompletion(*loop_, cluster_->StopGroup(std::move(group), absl::Seconds(2)));
  }
  void Settle() { loop_->RunFor(absl::Milliseconds(1)); }

  std::unique_ptr<EventLoop> loop_ = EventLoop::Simulated();
  core::MemoryJournal journal_{*loop_};
  std::unique_ptr<core::Core> core_;
  std::unique_ptr<JobCluster> cluster_;
  std::vector<std::pair<std::string, absl::Status>> failures_;
};

TEST_F(JobClusterTest, StartsAGroupAndStopsIt) {
  Make();
  auto node = Node("n0", 2);
  const auto group = Start({.role = "train", .num_ranks = 2, .args = {"--x"}, .cpu_slots_per_rank = 1});
  ASSERT_TRUE(group.ok()) << group.status();
  ASSERT_EQ((*group)->members().size(), 2u);
  EXPECT_EQ((*group)->members()[1].actor_id, "train-1");
  EXPECT_EQ((*group)->members()[1].address, "train-1:1");
  EXPECT_EQ((*group)->members()[1].pid, 1001);
  EXPECT_TRUE((*group)->health().ok());
  EXPECT_FALSE((*group)->adopted());
  EXPECT_EQ(cluster_->free_cpu_slots(), 0);
  const auto& args = node->started[1].args();
  EXPECT_THAT(std::vector<std::string>(args.begin(), args.end()), ::testing::ElementsAre("--x"));
  EXPECT_EQ(node->started[1].log_path(), "/nonexistent/logs/train-1.log");
  v1::GetStatusReply status;
  cluster_->FillStatus(&status);
  EXPECT_EQ(status.actors_size(), 2);
  EXPECT_EQ(status.actors(0).state(), v1::ACTOR_STATE_READY);
  EXPECT_EQ(status.nodes(0).cpu_slots_used(), 2);

  EXPECT_EQ(Start({.role = "train"}).status().code(), absl::StatusCode::kAlreadyExists);
  loop_->RunFor(absl::Minutes(10));  // beats keep it alive
  EXPECT_TRUE((*group)->health().ok());
  EXPECT_TRUE(Stop(*group).ok());
  EXPECT_EQ((*group)->health().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(cluster_->free_cpu_slots(), 2);
  EXPECT_TRUE(failures_.empty());
  EXPECT_GT(Start({.role = "train", .cpu_slots_per_rank = 1}).value()->epoch(), (*group)->epoch());
  EXPECT_TRUE(core_->CheckInvariants().empty());
}

TEST_F(JobClusterTest, TheImpossibleFailsAtOnce) {
  Make();
  auto node = Node("n0", 2);
  const absl::Time before = loop_->Now();
  const absl::Status status = Start({.role = "train", .num_ranks = 3, .cpu_slots_per_rank = 1}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(GetErrorInfo(status).origin(), v1::ORIGIN_USER);
  EXPECT_THAT(std::string(status.message()), HasSubstr("needs 3 CPU slots (3 ranks of 1), 2 registered"));
  EXPECT_EQ(loop_->Now(), before);
  EXPECT_TRUE(node->started.empty());
  node->Disconnect(/*left=*/true);
  EXPECT_THAT(std::string(Start({.role = "train", .cpu_slots_per_rank = 1}).status().message()),
              HasSubstr("n0 absent"));
  EXPECT_FALSE(Start({.role = "no-dashes"}).ok());
  EXPECT_FALSE(Start({.role = "train", .num_ranks = 0}).ok());
}

TEST_F(JobClusterTest, SoManyRanksOnEachNodeAndAPortForEach) {
  Make(3);
  auto first = Node("n0", 8), second = Node("n1", 8), third = Node("n2", 8);
  const auto group = Start({.role = "train", .num_ranks = 4, .cpu_slots_per_rank = 1, .ranks_per_node = 2, .ports_per_rank = 1});
  ASSERT_TRUE(group.ok()) << group.status();
  std::vector<std::string> nodes;
  for (const GroupMember& member : (*group)->members()) {
    nodes.push_back(member.node);
    EXPECT_EQ(member.ports.size(), 1u) << member.actor_id;
  }
  EXPECT_THAT(nodes, ::testing::ElementsAre("n0", "n0", "n1", "n1"));
  EXPECT_EQ(cluster_->RanksOf("train"), 4);
  EXPECT_EQ(cluster_->RanksOf("gen"), 0);
}

TEST_F(JobClusterTest, RanksThatNeedOneNodeAreNotSpread) {
  Make(2);
  auto first = Node("n0", 1, /*gpus=*/1), second = Node("n1", 2, /*gpus=*/2);
  EXPECT_EQ(cluster_->num_gpus(), 3);
  EXPECT_EQ(cluster_->nodes()[1].gpus, 2);
  const absl::Status status =
      Start({.role = "train", .num_ranks = 3, .cpu_slots_per_rank = 1, .one_node = true}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("needs one node with room for 3 ranks of 1 CPU slots"));
  EXPECT_TRUE(Start({.role = "train", .num_ranks = 2, .cpu_slots_per_rank = 1, .one_node = true}).ok());
  EXPECT_EQ(second->started.size(), 2u);
  EXPECT_TRUE(first->started.empty());
}

TEST_F(JobClusterTest, WaitsForNodesThatAreExpected) {
  Make(2);
  auto first = Node("n0", 1);
  loop_->RunAfter(absl::Seconds(5), [&] { Node("n1", 1); });
  const auto group = Start({.role = "train", .num_ranks = 2, .cpu_slots_per_rank = 1});
  ASSERT_TRUE(group.ok()) << group.status();
  EXPECT_EQ((*group)->members()[1].node, "n1");
}

TEST_F(JobClusterTest, SaysWhichNodesHaveNotCome) {
  Make(3);
  auto node = Node("n0", 1);
  const absl::Status late = Start({.role = "train", .num_ranks = 2, .cpu_slots_per_rank = 1}).status();
  EXPECT_EQ(late.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(late.message()), HasSubstr("1 of 3 expected nodes have joined (waited 30s)"));
  EXPECT_EQ(RunToCompletion(*loop_, cluster_->WaitForNodes(3, absl::Seconds(1))).code(),
            absl::StatusCode::kDeadlineExceeded);
  EXPECT_TRUE(RunToCompletion(*loop_, cluster_->WaitForNodes(1, absl::Seconds(1))).ok());
}

TEST_F(JobClusterTest, WaitsForSlotsInUseUntilTheDeadline) {
  Make();
  auto node = Node("n0", 2, 1);
  auto first = Start({.role = "a", .gpus_per_rank = 1}).value();
  EXPECT_EQ(Start({.role = "b", .gpus_per_rank = 1}).status().code(), absl::StatusCode::kDeadlineExceeded);
  loop_->RunAfter(absl::Seconds(3),
                  [&] { Spawn(*loop_, cluster_->StopGroup(first, absl::Seconds(1)), [](const absl::Status&) {}); });
  const absl::Time before = loop_->Now();
  const auto second = Start({.role = "b", .gpus_per_rank = 1});
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ((*second)->members()[0].gpu_indices, std::vector<int>{0});
  EXPECT_LT(loop_->Now() - before, absl::Seconds(4));
}

TEST_F(JobClusterTest, OnlookersSeeAGpuBesideItsHolder) {
  Make();
  auto node = Node("n0", 2, 1);
  ASSERT_TRUE(Start({.role = "train", .gpus_per_rank = 1}).ok());
  ASSERT_TRUE(Start({.role = "gen", .num_ranks = 2, .shares_gpu = true}).ok());
  ASSERT_EQ(node->started.size(), 3u);
  EXPECT_EQ(node->started[2].gpu_indices_size(), 1);
  EXPECT_EQ(node->started[2].gpu_indices(0), 0);
}

TEST_F(JobClusterTest, ADeathIsToldWithItsReasonToEveryone) {
  Make();
  auto node = Node("n0", 4);
  auto group = Start({.role = "train", .num_ranks = 3, .cpu_slots_per_rank = 1}).value();
  const uint64_t epoch = group->epoch();
  node->Exit("train-1", epoch, -1, 9);
  Settle();
  const absl::Status health = group->health();
  EXPECT_EQ(health.message(), "train-1 (pid 1001 on n0) was killed by signal 9 (Killed)");
  const v1::ErrorInfo info = GetErrorInfo(health);
  EXPECT_EQ(info.origin(), v1::ORIGIN_WORKER_DIED);
  EXPECT_EQ(info.rank(), 1);
  EXPECT_EQ(info.node(), "n0");
  EXPECT_EQ(info.exit_signal(), 9);
  EXPECT_EQ(info.last_lines(0), "its last line");
  ASSERT_EQ(failures_.size(), 1u);
  std::vector<std::string> told;
  for (const auto& command : node->commands) {
    if (!command.worker().order().has_peer_lost()) continue;
    EXPECT_EQ(command.worker().order().peer_lost().rank(), 1);
    told.push_back(command.worker().actor().actor_id());
  }
  EXPECT_THAT(told, ::testing::ElementsAre("train-0", "train-2"));
  node->Exit("train-0", epoch, 1, 0);  // a consequence: the first reason stays
  Settle();
  EXPECT_EQ(GetErrorInfo(group->health()).rank(), 1);
  EXPECT_EQ(failures_.size(), 1u);
  // A broken call is explained by it.
  EXPECT_EQ(RunToCompletion(*loop_, cluster_->Explain(absl::UnavailableError("Socket closed"))).message(),
            health.message());
  EXPECT_EQ(RunToCompletion(*loop_, cluster_->Explain(absl::InvalidArgumentError("bad"))).message(), "bad");
  EXPECT_TRUE(Stop(group).ok());
  EXPECT_EQ(cluster_->free_cpu_slots(), 4);
}

TEST_F(JobClusterTest, ACallThatBreaksFirstWaitsForTheReason) {
  Make();
  auto node = Node("n0", 4);
  auto group = Start({.role = "train", .cpu_slots_per_rank = 1}).value();
  loop_->RunAfter(absl::Milliseconds(300), [&] { node->Exit("train-0", group->epoch(), -1, 11); });
  EXPECT_THAT(
      std::string(RunToCompletion(*loop_, cluster_->Explain(absl::UnavailableError("Socket closed"))).message()),
      HasSubstr("signal 11"));
}

TEST_F(JobClusterTest, AFailureWhileStartingLeavesNothing) {
  Make();
  auto node = Node("n0", 2);
  node->announces = false;
  loop_->RunAfter(absl::Seconds(1), [&] { node->Exit("train-1", node->EpochOf("train-1"), 3, 0); });
  const absl::Status status = Start({.role = "train", .num_ranks = 2, .cpu_slots_per_rank = 1}).status();
  EXPECT_THAT(std::string(status.message()), HasSubstr("train-1 (pid 1001 on n0) exited with code 3"));
  EXPECT_EQ(GetErrorInfo(status).last_lines(0), "its last line");
  ASSERT_EQ(node->stopped.size(), 1u);
  EXPECT_EQ(node->stopped[0].actor_id(), "train-0");
  EXPECT_EQ(cluster_->free_cpu_slots(), 2);
  EXPECT_TRUE(failures_.empty());  // it was never ready

  const absl::Status late = Start({.role = "train", .cpu_slots_per_rank = 1}).status();
  EXPECT_EQ(late.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(late.message()), HasSubstr("train-0 on n0 has not announced itself within 1m"));
  EXPECT_EQ(cluster_->free_cpu_slots(), 2);
}

TEST_F(JobClusterTest, EpochsFenceWhatIsOver) {
  Make();
  auto node = Node("n0", 2);
  auto first = Start({.role = "train"}).value();
  EXPECT_TRUE(Stop(first).ok());
  auto second = Start({.role = "train"}).value();
  node->Exit("train-0", first->epoch(), -1, 9);  // the old one's end says nothing of the new
  Settle();
  EXPECT_TRUE(second->health().ok());
  // One that was started for an epoch that is over is stopped.
  v1::ActorReport report;
  report.mutable_started()->set_pid(5);
  const size_t stops = node->stopped.size();
  node->Report("train-0", first->epoch(), report);
  Settle();
  ASSERT_EQ(node->stopped.size(), stops + 1);
  EXPECT_EQ(node->stopped.back().epoch(), first->epoch());
}

TEST_F(JobClusterTest, ASilentActorIsDeadAndKilled) {
  Make();
  auto node = Node("n0", 2);
  auto group = Start({.role = "train", .num_ranks = 2}).value();
  loop_->RunFor(absl::Seconds(3));
  node->actors[{"train-1", group->epoch()}].silent = true;
  const absl::Time before = loop_->Now();
  while (group->health().ok() && loop_->Now() - before < absl::Minutes(1)) loop_->RunFor(absl::Milliseconds(100));
  EXPECT_THAT(std::string(group->health().message()), HasSubstr("train-1 (pid 1001 on n0) has not been heard of"));
  EXPECT_EQ(GetErrorInfo(group->health()).origin(), v1::ORIGIN_WORKER_DIED);
  EXPECT_LT(loop_->Now() - before, absl::Seconds(12));
  ASSERT_FALSE(node->stopped.empty());
  EXPECT_EQ(node->stopped[0].actor_id(), "train-1");
  EXPECT_EQ(node->stopped[0].grace_ms(), 0);
}

TEST_F(JobClusterTest, ASilentNodeIsLostWithItsActors) {
  Make();
  auto node = Node("n0", 2);
  auto group = Start({.role = "train", .cpu_slots_per_rank = 1}).value();
  node->beats = false;
  const absl::Time before = loop_->Now();
  while (group->health().ok() && loop_->Now() - before < absl::Minutes(1)) loop_->RunFor(absl::Milliseconds(100));
  EXPECT_LT(loop_->Now() - before, absl::Seconds(10));
  EXPECT_EQ(GetErrorInfo(group->health()).origin(), v1::ORIGIN_NODE_LOST);
  EXPECT_EQ(GetErrorInfo(group->health()).node(), "n0");
  EXPECT_FALSE(node->closed.ok());
  EXPECT_EQ(cluster_->free_cpu_slots(), 0);
  EXPECT_TRUE(Stop(group).ok());  // its lease ends within the grace
  v1::GetStatusReply status;
  cluster_->FillStatus(&status);
  EXPECT_FALSE(status.nodes(0).alive());
}

TEST_F(JobClusterTest, StopAllEndsEverythingEvenWhatStarts) {
  Make();
  auto node = Node("n0", 2);
  auto group = Start({.role = "train", .cpu_slots_per_rank = 1}).value();
  absl::Status starting, waiting;
  node->announces = false;
  Spawn(*loop_, cluster_->StartGroup({.role = "gen", .executable = "/x", .cpu_slots_per_rank = 1}),
        [&](const auto& result) { starting = result.status(); });
  Spawn(*loop_, cluster_->StartGroup({.role = "reward", .executable = "/x", .cpu_slots_per_rank = 1}),
        [&](const auto& result) { waiting = result.status(); });
  loop_->RunFor(absl::Seconds(1));
  EXPECT_TRUE(RunToCompletion(*loop_, cluster_->StopAll(absl::Seconds(1))).ok());
  Settle();
  EXPECT_EQ(starting.code(), absl::StatusCode::kCancelled) << starting;
  EXPECT_EQ(waiting.code(), absl::StatusCode::kCancelled) << waiting;
  EXPECT_EQ(group->health().code(), absl::StatusCode::kCancelled);
  EXPECT_FALSE(node->shut_down);  // the agents are not this job's
  EXPECT_TRUE(failures_.empty());
  EXPECT_EQ(Start({.role = "late"}).status().code(), absl::StatusCode::kCancelled);
  bool stopped = false;
  core_->Shutdown(absl::Seconds(1), "done", [&](absl::StatusOr<v1::Done> done) { stopped = done.ok(); });
  loop_->RunFor(absl::Seconds(1));
  EXPECT_TRUE(stopped);
  EXPECT_TRUE(node->shut_down);
}

TEST_F(JobClusterTest, StoppingDoesNotWaitForeverForAnAgent) {
  Make();
  auto node = Node("n0", 2);
  node->obeys = false;
  auto group = Start({.role = "train"}).value();
  const absl::Time before = loop_->Now();
  EXPECT_EQ(Stop(group).code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_LE(loop_->Now() - before, absl::Seconds(6));
}

TEST_F(JobClusterTest, ANameIsTakenOnce) {
  Make();
  auto node = Node("n0", 2);
  auto twin = std::make_shared<FakeNode>(*loop_, "n0", 2);
  twin->hello.set_incarnation(8);
  EXPECT_EQ(twin->Join(*core_).code(), absl::StatusCode::kAlreadyExists);
  EXPECT_FALSE(std::make_shared<FakeNode>(*loop_, "", 2)->Join(*core_).ok());
  node->Disconnect();
  EXPECT_TRUE(twin->Join(*core_).ok());
}

TEST_F(JobClusterTest, AJobFindsItsGroupsAgainAfterTheHeadWasStartedAnew) {
  Make();
  auto node = Node("n0", 4);
  const GroupSpec spec{.role = "train", .num_ranks = 2, .cpu_slots_per_rank = 1};
  auto before = Start(spec).value();
  const uint64_t epoch = before->epoch();
  cluster_.reset();
  core_.reset();  // kill -9
  node->Forsake();
  loop_->RunFor(absl::Seconds(5));
  core_ = std::make_unique<core::Core>(*loop_, journal_, nullptr, core::CoreOptions{.incarnation = 2},
                                       journal_.disk().Rows());
  cluster_ = std::make_unique<JobCluster>(*loop_, *core_, JobCluster::Options());
  loop_->RunAfter(absl::Seconds(1), [&] { EXPECT_TRUE(node->Join(*core_).ok()); });
  GroupSpec patient = spec;  // than which it was started with
  patient.placement_deadline = absl::Minutes(10);
  patient.waits_for_nodes = true;
  auto after = Start(patient);
  ASSERT_TRUE(after.ok()) << after.status();
  EXPECT_TRUE((*after)->adopted());
  EXPECT_EQ((*after)->epoch(), epoch);
  EXPECT_EQ((*after)->members()[1].pid, 1001);
  EXPECT_EQ(node->starts_of["train-1"], 1);
  EXPECT_TRUE(node->stopped.empty());
  // Another request under its name is another matter.
  GroupSpec other = spec;
  other.role = "train";
  other.args = {"--other"};
  cluster_ = std::make_unique<JobCluster>(*loop_, *core_, JobCluster::Options());
  const absl::Status refused = Start(other).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("args"));
  // Or it ends what there is, and begins with its own.
  EXPECT_EQ(cluster_->Roles(), std::vector<std::string>{"train"});
  EXPECT_TRUE(
      RunToCompletion(*loop_, cluster_->EndGroups(cluster_->Roles(), absl::Seconds(1), absl::Seconds(10))).ok());
  EXPECT_TRUE(cluster_->Roles().empty());
  EXPECT_EQ(node->stopped.size(), 2u);
  const auto anew = Start(spec);
  ASSERT_TRUE(anew.ok()) << anew.status();
  EXPECT_FALSE((*anew)->adopted());
  EXPECT_NE((*anew)->epoch(), epoch);
}

TEST_F(JobClusterTest, EndingGroupsIsNoFailureOfTheJob) {
  Make();
  auto node = Node("n0", 2);
  auto group = Start({.role = "train", .cpu_slots_per_rank = 1}).value();
  EXPECT_TRUE(
      RunToCompletion(*loop_, cluster_->EndGroups(cluster_->Roles(), absl::Seconds(1), absl::Seconds(10))).ok());
  Settle();
  EXPECT_EQ(group->health().code(), absl::StatusCode::kCancelled);
  EXPECT_TRUE(failures_.empty());
  EXPECT_EQ(cluster_->free_cpu_slots(), 2);
}

// cluster.max_worker_restarts: the algorithm ends what is left of a group and starts it anew.
TEST_F(JobClusterTest, AGroupWhoseFailuresAreHandledIsStartedAnew) {
  Make();
  cluster_->HandleFailuresOf({"gen"});
  auto node = Node("n0", 4);
  const auto train = Start({.role = "train", .cpu_slots_per_rank = 1}).value();
  const auto gen = Start({.role = "gen", .num_ranks = 2, .cpu_slots_per_rank = 1}).value();
  EXPECT_EQ(cluster_->Find("gen"), gen);
  node->Exit("gen-1", gen->epoch(), -1, 9);
  Settle();
  EXPECT_FALSE(gen->health().ok());
  EXPECT_TRUE(failures_.empty());
  EXPECT_EQ(cluster_->Find("gen"), nullptr);
  EXPECT_EQ(cluster_->Find("train"), train);
  EXPECT_EQ(RunToCompletion(*loop_, cluster_->Explain(absl::UnavailableError("Socket closed"))), gen->health());
  ASSERT_TRUE(RunToCompletion(*loop_, cluster_->EndGroups({"gen"}, absl::Seconds(1), absl::Seconds(10))).ok());
  const auto anew = Start({.role = "gen", .num_ranks = 2, .cpu_slots_per_rank = 1});
  ASSERT_TRUE(anew.ok()) << anew.status();
  EXPECT_GT((*anew)->epoch(), gen->epoch());
  EXPECT_TRUE(train->health().ok());
  // That death explains nothing any more.
  EXPECT_EQ(RunToCompletion(*loop_, cluster_->Explain(absl::UnavailableError("Socket closed"))).message(),
            "Socket closed");
  node->Exit("train-0", train->epoch(), -1, 9);
  Settle();
  ASSERT_EQ(failures_.size(), 1u);
  EXPECT_EQ(failures_[0].first, "train");
}

TEST_F(JobClusterTest, RoomOnALostNodeIsWaitedForUntilAnotherJoins) {
  Make();
  core_->AddLocalJob(core::kOnlyJob, "/nonexistent", 0);
  cluster_->HandleFailuresOf({"train"});
  auto node = Node("n0", 2);
  GroupSpec spec{.role = "train", .num_ranks = 2, .cpu_slots_per_rank = 1, .one_node = true};
  const auto group = Start(spec).value();
  node->beats = false;
  while (group->health().ok()) loop_->RunFor(absl::Milliseconds(100));
  ASSERT_TRUE(RunToCompletion(*loop_, cluster_->EndGroups({"train"}, absl::Seconds(1), absl::Seconds(60))).ok());
  EXPECT_EQ(Start(spec).status().code(), absl::StatusCode::kFailedPrecondition);
  spec.waits_for_nodes = true;
  spec.placement_deadline = absl::Minutes(10);
  std::string waits_for;
  loop_->RunAfter(absl::Minutes(4), [&] { waits_for = cluster_->WaitsFor(); });
  loop_->RunAfter(absl::Minutes(5), [&] { Node("n1", 2); });
  const auto anew = Start(spec);
  ASSERT_TRUE(anew.ok()) << anew.status();
  EXPECT_EQ((*anew)->members()[0].node, "n1");
  EXPECT_THAT(waits_for, HasSubstr("n0 absent"));
  EXPECT_EQ(cluster_->WaitsFor(), "");
}

}  // namespace
}  // namespace manta::controller
