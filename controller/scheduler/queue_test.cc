#include "controller/scheduler/queue.h"

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace manta::controller::scheduler {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class QueueTest : public ::testing::Test {
 protected:
  QueueTest() {
    for (int i = 0; i < 4; ++i) {
      const NodeIndex node = view_.Add(absl::StrCat("n", i));
      view_.SetCapacity(node, {.cpu_slots = 2});
      view_.SetUsable(node, Usable::kYes);
    }
  }
  void Add(uint64_t id, int ranks, int cpus, int priority = 0, uint64_t job = 1) {
    Waiting waiting{.id = id, .job_arrival = job, .arrival = id};
    waiting.request.set_name(absl::StrCat("p", id));
    waiting.request.set_job(absl::StrCat("j", job));
    waiting.request.set_repeat(ranks);
    waiting.request.set_priority(priority);
    waiting.request.add_bundles()->set_cpu_slots(cpus);
    queue_.Add(std::move(waiting));
  }
  // Runs a pass; ids that were placed, in order.
  std::vector<uint64_t> Pass() {
    outcome_ = queue_.Pass(view_, [this](const Waiting& waiting) {
      ClusterView kept = view_;
      for (const auto& [holder, placement] : held_) {
        if (PlacementQueue::Key(holder) < PlacementQueue::Key(waiting)) continue;
        for (const PlacedRank& rank : placement) kept.Give(rank, holder.request.bundles(0), holder.request.job());
      }
      return kept;
    });
    std::vector<uint64_t> ids;
    for (auto& [waiting, placement] : outcome_.placed) {
      ids.push_back(waiting.id);
      held_.emplace_back(waiting, placement);
    }
    return ids;
  }
  void End(uint64_t id) {
    for (auto it = held_.begin(); it != held_.end(); ++it) {
      if (it->first.id != id) continue;
      for (const PlacedRank& rank : it->second) view_.Give(rank, it->first.request.bundles(0), it->first.request.job());
      held_.erase(it);
      return;
    }
  }

  ClusterView view_;
  PlacementQueue queue_;
  PlacementQueue::Outcome outcome_;
  std::vector<std::pair<Waiting, Placement>> held_;
};

TEST_F(QueueTest, PriorityThenJobThenArrival) {
  Add(1, 1, 2, 0, 2);
  Add(2, 1, 2, 0, 1);
  Add(3, 1, 2, 5, 3);
  Add(4, 1, 2, 0, 1);
  EXPECT_THAT(Pass(), ElementsAre(3, 2, 4, 1));
  EXPECT_TRUE(queue_.empty());
}

TEST_F(QueueTest, TheFirstKeepsWhatItWaitsFor) {
  Add(1, 3, 2);
  EXPECT_THAT(Pass(), ElementsAre(1));  // n0 n1 n2
  Add(2, 2, 2);                         // needs two nodes, one is free
  Add(3, 1, 2, 0, 2);                   // would fit on the free one
  EXPECT_THAT(Pass(), ElementsAre());
  ASSERT_EQ(outcome_.waiting.size(), 2u);
  EXPECT_THAT(std::string(outcome_.waiting[0].second.message()), HasSubstr("p2 waits for slots that are in use"));
  EXPECT_THAT(std::string(outcome_.waiting[1].second.message()), HasSubstr("p3 waits behind p2"));
  End(1);
  EXPECT_THAT(Pass(), ElementsAre(2, 3));
}

TEST_F(QueueTest, OthersGoAheadBesideIt) {
  Add(1, 2, 2);  // n0 n1, of the job that goes on asking
  EXPECT_THAT(Pass(), ElementsAre(1));
  Add(2, 1, 1, 0, 3);  // a younger job's, on n2
  EXPECT_THAT(Pass(), ElementsAre(2));
  Add(3, 2, 2);        // waits for n2 and n3
  Add(4, 1, 1, 0, 3);  // n2's other slot and n3 are kept
  EXPECT_THAT(Pass(), ElementsAre());
  queue_.Remove(4);
  // With a node more it needs n2 no longer than others: the kept ones are n3 and n4 ... and n2 is open.
  const NodeIndex node = view_.Add("n4");
  view_.SetCapacity(node, {.cpu_slots = 2});
  view_.SetUsable(node, Usable::kYes);
  EXPECT_THAT(Pass(), ElementsAre(3));
}

TEST_F(QueueTest, TheImpossibleBlocksNobody) {
  Add(1, 100, 1);
  Add(2, 1, 1, 0, 2);
  EXPECT_THAT(Pass(), ElementsAre(2));
  ASSERT_EQ(outcome_.impossible.size(), 1u);
  EXPECT_EQ(outcome_.impossible[0].second.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(queue_.Remove(1));
  EXPECT_FALSE(queue_.Remove(1));
}

}  // namespace
}  // namespace manta::controller::scheduler
