// The cluster's logic against fake nodes and actors in simulated time.
#include "controller/cluster/cluster.h"

#include "common/base/status.h"
#include "controller/cluster/fake_ports.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace manta::controller {
namespace {

using ::testing::HasSubstr;

class ClusterTest : public ::testing::Test {
 protected:
  void Make(int expected_nodes = 1) {
    cluster_ = std::make_unique<Cluster>(*loop_, actors_,
                                         Cluster::Options{.run_dir = "/nonexistent",
                                                          .controller_address = "127.0.0.1:1",
                                                          .token_file = "/token",
                                                          .expected_nodes = expected_nodes});
    cluster_->OnGroupFailed(
        [this](const Group& group, const absl::Status& status) { failures_.emplace_back(group.role(), status); });
  }
  std::shared_ptr<FakeNode> Node(const std::string& name, int cpu_slots, int gpus = 0) {
    auto node = std::make_shared<FakeNode>(*loop_, *cluster_, name, cpu_slots, gpus);
    EXPECT_TRUE(node->Join().ok());
    return node;
  }
  absl::StatusOr<std::shared_ptr<Group>> Start(GroupSpec spec) {
    spec.executable = "/bin/worker";
    return RunToCompletion(*loop_, cluster_->StartGroup(std::move(spec)));
  }
  absl::Status Stop(std::shared_ptr<Group> group) {
    return RunToCompletion(*loop_, cluster_->StopGroup(std::move(group), absl::Seconds(2)));
  }

  std::unique_ptr<EventLoop> loop_ = EventLoop::Simulated();
  FakeActors actors_{*loop_};
  std::unique_ptr<Cluster> cluster_;
  std::vector<std::pair<std::string, absl::Status>> failures_;
};

TEST_F(ClusterTest, StartsAGroupAndStopsIt) {
  Make();
  auto node = Node("n0", 2);
  const auto group = Start({.role = "train", .num_ranks = 2, .args = {"--x"}, .cpu_slots_per_rank = 1});
  ASSERT_TRUE(group.ok()) << group.status();
  ASSERT_EQ((*group)->members().size(), 2u);
  EXPECT_EQ((*group)->members()[1].actor_id, "train-1");
  EXPECT_EQ((*group)->members()[1].address, "train-1:1");
  EXPECT_EQ((*group)->members()[1].pid, 1001);
  EXPECT_TRUE((*group)->health().ok());
  EXPECT_EQ(cluster_->free_cpu_slots(), 0);
  const auto& args = node->started[1].args();
  EXPECT_THAT(std::vector<std::string>(args.begin(), args.end()),
              ::testing::ElementsAre("--actor-id", "train-1", "--epoch", "1", "--controller", "127.0.0.1:1",
                                     "--token-file", "/token", "--x"));
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
  EXPECT_EQ(Start({.role = "train", .cpu_slots_per_rank = 1}).value()->epoch(), 2u);
}

TEST_F(ClusterTest, TheImpossibleFailsAtOnce) {
  Make();
  auto node = Node("n0", 2);
  const absl::Time before = loop_->Now();
  const absl::Status status = Start({.role = "train", .num_ranks = 3, .cpu_slots_per_rank = 1}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("needs 3 CPU slots (3 ranks of 1), 2 registered"));
  EXPECT_EQ(loop_->Now(), before);
  EXPECT_TRUE(node->started.empty());
  cluster_->NodeGone("n0", "killed");
  EXPECT_THAT(std::string(Start({.role = "train", .cpu_slots_per_rank = 1}).status().message()),
              HasSubstr("n0 absent"));
  EXPECT_FALSE(Start({.role = "no-dashes"}).ok());
  EXPECT_FALSE(Start({.role = "train", .num_ranks = 0}).ok());
}

TEST_F(ClusterTest, WaitsForNodesThatAreExpected) {
  Make(2);
  auto first = Node("n0", 1);
  loop_->RunAfter(absl::Seconds(5), [&] { Node("n1", 1); });
  const auto group = Start({.role = "train", .num_ranks = 2, .cpu_slots_per_rank = 1});
  ASSERT_TRUE(group.ok()) << group.status();
  EXPECT_EQ((*group)->members()[1].node, "n1");
}

TEST_F(ClusterTest, SaysWhichNodesHaveNotCome) {
  Make(3);
  auto node = Node("n0", 1);
  const absl::Status late = Start({.role = "train", .num_ranks = 2, .cpu_slots_per_rank = 1}).status();
  EXPECT_EQ(late.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(late.message()), HasSubstr("1 of 3 expected nodes have joined"));
  EXPECT_EQ(RunToCompletion(*loop_, cluster_->WaitForNodes(3, absl::Seconds(1))).code(),
            absl::StatusCode::kDeadlineExceeded);
}

TEST_F(ClusterTest, WaitsForSlotsInUseUntilTheDeadline) {
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

TEST_F(ClusterTest, ADeathIsToldWithItsReasonToEveryone) {
  Make();
  auto node = Node("n0", 4);
  auto group = Start({.role = "train", .num_ranks = 3, .cpu_slots_per_rank = 1}).value();
  node->Exit("train-1", 1, -1, 9);
  const absl::Status health = group->health();
  EXPECT_EQ(health.message(), "train-1 (pid 1001 on n0) was killed by signal 9 (Killed)");
  const v1::ErrorInfo info = GetErrorInfo(health);
  EXPECT_EQ(info.origin(), v1::ORIGIN_WORKER_DIED);
  EXPECT_EQ(info.rank(), 1);
  EXPECT_EQ(info.node(), "n0");
  EXPECT_EQ(info.exit_signal(), 9);
  EXPECT_EQ(info.last_lines(0), "its last line");
  ASSERT_EQ(failures_.size(), 1u);
  ASSERT_EQ(actors_.peers_lost("train-0:1").size(), 1u);
  EXPECT_EQ(actors_.peers_lost("train-2:1")[0].rank(), 1);
  EXPECT_TRUE(actors_.peers_lost("train-1:1").empty());
  node->Exit("train-0", 1, 1, 0);  // a consequence: the first reason stays
  EXPECT_EQ(GetErrorInfo(group->health()).rank(), 1);
  EXPECT_EQ(failures_.size(), 1u);
  // A broken call is explained by it.
  EXPECT_EQ(RunToCompletion(*loop_, cluster_->Explain(absl::UnavailableError("Socket closed"))).message(),
            health.message());
  EXPECT_EQ(RunToCompletion(*loop_, cluster_->Explain(absl::InvalidArgumentError("bad"))).message(), "bad");
  EXPECT_TRUE(Stop(group).ok());
  EXPECT_EQ(cluster_->free_cpu_slots(), 4);
}

TEST_F(ClusterTest, AFailureWhileStartingLeavesNothing) {
  Make();
  auto node = Node("n0", 2);
  node->announces = false;
  loop_->RunAfter(absl::Seconds(1), [&] { node->Exit("train-1", 1, 3, 0); });
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

TEST_F(ClusterTest, EpochsFenceWhatIsOver) {
  Make();
  auto node = Node("n0", 2);
  auto first = Start({.role = "train"}).value();
  EXPECT_TRUE(node->Announce("train-0", 1).ok());  // again, from the same address
  EXPECT_TRUE(Stop(first).ok());
  auto second = Start({.role = "train"}).value();
  EXPECT_EQ(node->Announce("train-0", 1).code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(node->Announce("train-7", 2).code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(node->Announce("other-0", 1).code(), absl::StatusCode::kPermissionDenied);
  node->Exit("train-0", 1, -1, 9);  // the old one's end says nothing of the new
  EXPECT_TRUE(second->health().ok());
  // One that was started for an epoch that is over is stopped.
  v1::NodeEvent event;
  event.mutable_started()->set_actor_id("train-0");
  event.mutable_started()->set_epoch(1);
  const size_t stops = node->stopped.size();
  cluster_->NodeEvent("n0", event);
  ASSERT_EQ(node->stopped.size(), stops + 1);
  EXPECT_EQ(node->stopped.back().epoch(), 1u);
}

TEST_F(ClusterTest, ASilentActorIsDeadAndKilled) {
  Make();
  auto node = Node("n0", 2);
  auto group = Start({.role = "train", .num_ranks = 2}).value();
  actors_.Silence("train-1:1");
  const absl::Time before = loop_->Now();
  while (group->health().ok() && loop_->Now() - before < absl::Minutes(1)) loop_->RunFor(absl::Milliseconds(100));
  EXPECT_THAT(std::string(group->health().message()), HasSubstr("train-1 (pid 1001 on n0) has not been heard of"));
  EXPECT_EQ(GetErrorInfo(group->health()).origin(), v1::ORIGIN_WORKER_DIED);
  EXPECT_LT(loop_->Now() - before, absl::Seconds(12));
  ASSERT_FALSE(node->stopped.empty());
  EXPECT_EQ(node->stopped[0].actor_id(), "train-1");
  EXPECT_EQ(node->stopped[0].grace_ms(), 0);
}

TEST_F(ClusterTest, ASilentNodeIsLostWithItsActors) {
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
  EXPECT_TRUE(Stop(group).ok());  // there is nothing left to wait for
  v1::GetStatusReply status;
  cluster_->FillStatus(&status);
  EXPECT_FALSE(status.nodes(0).alive());
}

TEST_F(ClusterTest, ABrokenConnectionWaitsForTheReasonThenIsOne) {
  Make();
  auto node = Node("n0", 2);
  auto group = Start({.role = "gen", .num_ranks = 2}).value();
  actors_.Break("gen-0:1");
  EXPECT_TRUE(group->health().ok());
  loop_->RunFor(absl::Milliseconds(100));
  node->Exit("gen-0", 1, -1, 11);
  EXPECT_THAT(std::string(group->health().message()), HasSubstr("signal 11"));
  loop_->RunFor(absl::Seconds(5));
  EXPECT_TRUE(Stop(group).ok());

  group = Start({.role = "gen", .num_ranks = 2}).value();
  actors_.Break("gen-1:1");
  loop_->RunFor(absl::Seconds(3));
  EXPECT_THAT(std::string(group->health().message()), HasSubstr("the connection to gen-1 broke"));
}

TEST_F(ClusterTest, StopAllEndsEverythingEvenWhatStarts) {
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
  EXPECT_EQ(starting.code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(waiting.code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(group->health().code(), absl::StatusCode::kCancelled);
  EXPECT_TRUE(node->shut_down);
  EXPECT_TRUE(failures_.empty());
  EXPECT_EQ(Start({.role = "late"}).status().code(), absl::StatusCode::kCancelled);
}

TEST_F(ClusterTest, StoppingDoesNotWaitForeverForAnAgent) {
  Make();
  auto node = Node("n0", 2);
  node->obeys = false;
  auto group = Start({.role = "train"}).value();
  const absl::Time before = loop_->Now();
  EXPECT_EQ(Stop(group).code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_LE(loop_->Now() - before, absl::Seconds(6));
}

TEST_F(ClusterTest, ANameIsTakenOnce) {
  Make();
  auto node = Node("n0", 2);
  auto twin = std::make_shared<FakeNode>(*loop_, *cluster_, "n0", 2);
  EXPECT_EQ(twin->Join().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_FALSE(std::make_shared<FakeNode>(*loop_, *cluster_, "", 2)->Join().ok());
  cluster_->NodeGone("n0", "gone");
  EXPECT_TRUE(twin->Join().ok());
}

}  // namespace
}  // namespace manta::controller
