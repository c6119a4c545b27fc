#include "controller/algorithms/wait_for_nodes.h"

#include <optional>

#include "controller/core/fake_node.h"
#include "controller/core/memory_journal.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace manta::controller {
namespace {

using core::FakeNode;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class WaitForNodesTest : public ::testing::Test {
 protected:
  ~WaitForNodesTest() override {
    cluster_.reset();
    core_.reset();
  }
  std::shared_ptr<FakeNode> Node(const std::string& name) {
    auto node = std::make_shared<FakeNode>(*loop_, name, 2, 0);
    EXPECT_TRUE(node->Join(*core_).ok());
    return node;
  }
  void Begin(int count, absl::Duration patience) {
    const RunContext context{.loop = loop_.get(), .cluster = cluster_.get(), .events = &events_, .stop = stop_.token()};
    Spawn(*loop_, WaitForNodes(context, count, patience), [this](const absl::Status& status) { result_ = status; });
    loop_->RunFor(absl::Milliseconds(1));
  }
  std::vector<std::string> Phases() const {
    std::vector<std::string> phases;
    for (const v1::RunEvent& event : events_.After(0, 100)) {
      if (event.has_phase()) phases.push_back(event.phase().name());
    }
    return phases;
  }

  std::unique_ptr<EventLoop> loop_ = EventLoop::Simulated();
  core::MemoryJournal journal_{*loop_};
  std::unique_ptr<core::Core> core_ = std::make_unique<core::Core>(
      *loop_, journal_, nullptr, core::CoreOptions{.run_dir = "/nonexistent"}, std::vector<core::JournalEntry>());
  std::unique_ptr<JobCluster> cluster_ = std::make_unique<JobCluster>(*loop_, *core_, JobCluster::Options());
  RunEvents events_;
  CancelSource stop_;
  std::optional<absl::Status> result_;
};

TEST_F(WaitForNodesTest, SaysHowManyHaveComeUntilAllHave) {
  auto a = Node("a");
  Begin(3, absl::Minutes(10));
  EXPECT_FALSE(result_.has_value());
  loop_->RunFor(absl::Minutes(5));
  auto b = Node("b");
  loop_->RunFor(absl::Seconds(1));
  EXPECT_FALSE(result_.has_value());
  auto c = Node("c");
  loop_->RunFor(absl::Seconds(1));
  ASSERT_TRUE(result_.has_value());
  EXPECT_TRUE(result_->ok()) << *result_;
  EXPECT_THAT(Phases(), ElementsAre("waiting for nodes: 1 of 3 have joined", "waiting for nodes: 2 of 3 have joined"));
}

TEST_F(WaitForNodesTest, NamesThoseThatCameWhenTheTimeIsUp) {
  auto b = Node("b"), a = Node("a");
  Begin(4, absl::Seconds(90));
  auto gone = Node("gone");
  loop_->RunFor(absl::Seconds(30));
  gone->Disconnect(/*left=*/true);
  loop_->RunFor(absl::Seconds(59));
  EXPECT_FALSE(result_.has_value());
  loop_->RunFor(absl::Seconds(2));
  ASSERT_TRUE(result_.has_value());
  EXPECT_TRUE(absl::IsDeadlineExceeded(*result_)) << *result_;
  EXPECT_THAT(std::string(result_->message()), HasSubstr("2 of 4 nodes (cluster.num_nodes) have joined within 1m30s "
                                                         "(cluster.wait_for_nodes_s): a, b; `manta join` brings a machine"));
}

TEST_F(WaitForNodesTest, OneThatIsThereIsNotTalkedAbout) {
  auto a = Node("a");
  Begin(1, absl::Seconds(1));
  ASSERT_TRUE(result_.has_value());
  EXPECT_TRUE(result_->ok());
  EXPECT_EQ(events_.last_sequence(), 0u);
}

}  // namespace
}  // namespace manta::controller
