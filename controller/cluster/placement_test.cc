#include "controller/cluster/placement.h"

#include <numeric>
#include <set>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace manta::controller {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

NodeCapacity Node(const std::string& name, int cpus, int gpus) {
  NodeCapacity node{.name = name, .cpu_slots = cpus, .cpu_free = cpus, .num_gpus = gpus};
  node.gpus_free.resize(gpus);
  std::iota(node.gpus_free.begin(), node.gpus_free.end(), 0);
  return node;
}

std::vector<std::string> Nodes(const std::vector<RankPlacement>& placements) {
  std::vector<std::string> names;
  for (const auto& p : placements) names.push_back(p.node);
  return names;
}

TEST(Placement, SaysWhatIsMissing) {
  const auto message = [](std::vector<NodeCapacity> nodes, PlacementRequest request) {
    const auto result = Place(nodes, request);
    EXPECT_EQ(result.status().code(), absl::StatusCode::kFailedPrecondition);
    return std::string(result.status().message());
  };
  EXPECT_EQ(message({Node("a", 2, 0)}, {"train", 3, 1, 0}), "train needs 3 CPU slots (3 ranks of 1), 2 registered");
  EXPECT_EQ(message({Node("a", 64, 4), Node("b", 64, 4)}, {"train", 16, 1, 1}),
            "train needs 16 GPUs (16 ranks of 1), 8 registered");
  EXPECT_THAT(message({Node("a", 8, 2), Node("b", 8, 2)}, {"gen", 1, 0, 4}),
              HasSubstr("needs 4 GPUs on one node for each rank, the largest node has 2"));
  EXPECT_THAT(message({Node("a", 8, 3), Node("b", 8, 3)}, {"gen", 3, 0, 2}), HasSubstr("the nodes have 2 such places"));
  EXPECT_EQ(message({}, {"train", 1, 1, 0}), "train has no node to run on");
}

TEST(Placement, WaitsForWhatIsInUse) {
  NodeCapacity busy = Node("a", 4, 0);
  busy.cpu_free = 1;
  EXPECT_EQ(Place({busy}, {"train", 2, 1, 0}).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(Place({busy}, {"train", 1, 1, 0}).ok());
  EXPECT_TRUE(Place({busy}, {"reward", 8, 0, 0}).ok());  // asks for nothing
}

TEST(Placement, KeepsRanksTogetherInTopologyOrder) {
  const auto spread = Place({Node("node-10", 2, 2), Node("node-2", 2, 2)}, {"train", 4, 1, 1}).value();
  EXPECT_THAT(Nodes(spread), ElementsAre("node-2", "node-2", "node-10", "node-10"));
  EXPECT_THAT(spread[0].gpus, ElementsAre(0));
  EXPECT_THAT(spread[1].gpus, ElementsAre(1));
  EXPECT_THAT(spread[2].gpus, ElementsAre(0));
  // One node has room for all: the fullest such.
  const auto together = Place({Node("a", 8, 8), Node("b", 8, 4)}, {"train", 4, 1, 1}).value();
  EXPECT_THAT(Nodes(together), ElementsAre("b", "b", "b", "b"));
}

TEST(Placement, NeverGivesAGpuTwice) {
  const auto placed = Place({Node("a", 100, 8), Node("b", 100, 8)}, {"gen", 5, 2, 3}).status();
  EXPECT_FALSE(placed.ok());  // two places a node, four in all
  const auto four = Place({Node("a", 100, 8), Node("b", 100, 8)}, {"gen", 4, 2, 3}).value();
  std::set<std::pair<std::string, int>> seen;
  for (const auto& p : four) {
    EXPECT_EQ(p.gpus.size(), 3u);
    for (int gpu : p.gpus) EXPECT_TRUE(seen.emplace(p.node, gpu).second);
  }
}

TEST(Placement, NaturalOrder) {
  EXPECT_TRUE(NaturalLess("node-2", "node-10"));
  EXPECT_FALSE(NaturalLess("node-10", "node-2"));
  EXPECT_TRUE(NaturalLess("a9z", "a10"));
  EXPECT_TRUE(NaturalLess("a", "a1"));
  EXPECT_FALSE(NaturalLess("a", "a"));
  EXPECT_NE(NaturalLess("n-01", "n-1"), NaturalLess("n-1", "n-01"));
}

}  // namespace
}  // namespace manta::controller
