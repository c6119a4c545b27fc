// Distribute against every possible answer on small cases.
#include <algorithm>
#include <functional>
#include <set>

#include "common/base/random.h"
#include "controller/scheduler/distribute.h"
#include "gtest/gtest.h"

namespace manta::controller::scheduler {
namespace {

struct Case {
  std::vector<RoomOnNode> rooms;
  int num_ranks = 1;
  v1::Strategy strategy = v1::STRATEGY_PACK;
  int segment = 0;
};

// nodes[rank] -> is that allowed?
bool Allowed(const Case& c, const std::vector<int>& nodes) {
  std::vector<int> used(c.rooms.size(), 0);
  for (int node : nodes) ++used[node];
  for (size_t i = 0; i < used.size(); ++i) {
    if (used[i] > c.rooms[i].room) return false;
    if (c.strategy == v1::STRATEGY_STRICT_SPREAD && used[i] > 1) return false;
    if (c.strategy == v1::STRATEGY_STRICT_PACK && used[i] > 0 && used[i] < c.num_ranks) return false;
  }
  if (c.segment > 0) {
    for (int rank = 0; rank < c.num_ranks; ++rank) {
      const int first = rank / c.segment * c.segment;
      if (c.rooms[nodes[rank]].domain != c.rooms[nodes[first]].domain) return false;
    }
  }
  return true;
}

// Is there an answer at all, and with how few nodes?
int FewestNodes(const Case& c) {
  int best = -1;
  std::vector<int> nodes;
  std::vector<int> used(c.rooms.size(), 0);
  const std::function<void()> search = [&] {
    if (static_cast<int>(nodes.size()) == c.num_ranks) {
      if (!Allowed(c, nodes)) return;
      const int count = static_cast<int>(std::set<int>(nodes.begin(), nodes.end()).size());
      if (best < 0 || count < best) best = count;
      return;
    }
    for (int i = 0; i < static_cast<int>(c.rooms.size()); ++i) {
      if (used[i] >= c.rooms[i].room) continue;
      ++used[i];
      nodes.push_back(i);
      search();
      nodes.pop_back();
      --used[i];
    }
  };
  search();
  return best;
}

TEST(DistributeRandom, FindsAnAnswerWheneverThereIsOne) {
  RandomStream random(20260101);
  int possible = 0;
  for (int trial = 0; trial < 4000; ++trial) {
    Case c;
    const int num_nodes = 1 + static_cast<int>(random.NextBelow(4));
    int domain = 0;
    for (int i = 0; i < num_nodes; ++i) {
      if (i > 0 && random.NextBelow(2) == 0) ++domain;
      c.rooms.push_back({domain, static_cast<int>(random.NextBelow(4))});
    }
    c.num_ranks = 1 + static_cast<int>(random.NextBelow(6));
    c.strategy = static_cast<v1::Strategy>(random.NextBelow(5));
    c.segment = static_cast<int>(random.NextBelow(4));
    const int fewest = FewestNodes(c);
    const auto shares = Distribute(c.rooms, c.num_ranks, c.strategy, c.segment);
    ASSERT_EQ(shares.has_value(), fewest >= 0) << "trial " << trial;
    if (!shares.has_value()) continue;
    ++possible;
    std::vector<int> nodes, take(num_nodes, 0);
    for (const Share& share : *shares) {
      ASSERT_GT(share.ranks, 0);
      nodes.insert(nodes.end(), share.ranks, share.node);
      take[share.node] += share.ranks;
    }
    ASSERT_EQ(static_cast<int>(nodes.size()), c.num_ranks) << "trial " << trial;
    EXPECT_TRUE(Allowed(c, nodes)) << "trial " << trial;
    if (c.segment == 0) {
      EXPECT_TRUE(std::is_sorted(nodes.begin(), nodes.end())) << "topology order, trial " << trial;
    }
    const bool packs = c.strategy <= v1::STRATEGY_PACK;
    if (packs && c.segment <= 1 && domain == 0) {
      EXPECT_EQ(std::count_if(take.begin(), take.end(), [](int t) { return t > 0; }), fewest) << "trial " << trial;
    }
    if (packs && fewest == 1) {
      EXPECT_EQ(shares->size(), 1u) << "trial " << trial;
    }
    if (packs) {  // one domain where one suffices
      std::vector<int> in_domain(domain + 1, 0);
      std::set<int> used;
      for (int i = 0; i < num_nodes; ++i) in_domain[c.rooms[i].domain] += c.rooms[i].room;
      for (int node : nodes) used.insert(c.rooms[node].domain);
      if (*std::max_element(in_domain.begin(), in_domain.end()) >= c.num_ranks) {
        EXPECT_EQ(used.size(), 1u) << "trial " << trial;
      }
    }
    if (c.strategy == v1::STRATEGY_SPREAD && c.segment <= 1) {  // nobody could hand one to an emptier node
      for (int i = 0; i < num_nodes; ++i) {
        for (int j = 0; j < num_nodes; ++j) {
          if (take[j] < c.rooms[j].room) {
            EXPECT_LE(take[i], take[j] + 1) << "trial " << trial;
          }
        }
      }
    }
  }
  EXPECT_GT(possible, 1000);
}

}  // namespace
}  // namespace manta::controller::scheduler
