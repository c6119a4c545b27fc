#include "controller/algorithms/trainer_placement.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace manta::controller {
namespace {

using ::testing::HasSubstr;
using Nodes = std::vector<JobCluster::NodeGpus>;

// `cluster`: "num_nodes=2 trainer_ranks=4".
std::string Placed(const std::string& cluster, bool cuda, const Nodes& nodes) {
  std::vector<std::string> overrides = {"cluster.trainer_ranks=0"};
  for (const auto& key : absl::StrSplit(cluster, ' ', absl::SkipEmpty())) overrides.push_back(absl::StrCat("cluster.", key));
  const auto tree = config::LoadTree("configs/quickstart_grpo.yaml", overrides);
  if (!tree.ok()) return std::string(tree.status().message());
  const auto run = config::ParseRunConfig(*tree);
  if (!run.ok()) return std::string(run.status().message());
  const auto placed = PlaceTrainer(*tree, *run, cuda, nodes);
  if (!placed.ok()) return std::string(placed.status().message());
  return absl::StrCat(placed->ranks, " ranks, ", placed->per_node, " a node", placed->one_node ? ", one node" : "",
                      placed->warning.empty() ? "" : ": ", placed->warning);
}

TEST(PlaceTrainer, OnOneNodeAsManyAsItHas) {
  EXPECT_EQ(Placed("", false, {{"a", 0}}), "1 ranks, 0 a node, one node");
  EXPECT_EQ(Placed("trainer_ranks=3", false, {{"a", 0}}), "3 ranks, 0 a node, one node");
  EXPECT_EQ(Placed("", true, {{"a", 2}, {"b", 8}}), "8 ranks, 0 a node, one node");
  EXPECT_THAT(Placed("trainer_ranks=3", true, {{"a", 2}}), HasSubstr("2 ranks, 0 a node, one node: cluster.trainer_ranks is 3"));
}

TEST(PlaceTrainer, OverNodesTheSameOnEach) {
  EXPECT_EQ(Placed("num_nodes=2", false, {{"a", 0}, {"b", 0}}), "2 ranks, 1 a node");
  EXPECT_EQ(Placed("num_nodes=2 trainer_ranks=6", false, {{"a", 0}, {"b", 0}}), "6 ranks, 3 a node");
  EXPECT_EQ(Placed("num_nodes=2", true, {{"a", 8}, {"b", 8}}), "16 ranks, 8 a node");
  EXPECT_EQ(Placed("num_nodes=2", true, {{"a", 0}, {"b", 4}, {"c", 8}}), "8 ranks, 4 a node") << "of which two have four";
  EXPECT_EQ(Placed("num_nodes=2 gpus_per_node=2", true, {{"a", 8}, {"b", 8}}), "4 ranks, 2 a node");
  EXPECT_EQ(Placed("num_nodes=2 gpus_per_node=2 trainer_ranks=8", true, {{"a", 8}, {"b", 8}}), "8 ranks, 4 a node");
}

TEST(PlaceTrainer, FewerRanksThanNodesLieWhereThereIsRoom) {
  EXPECT_EQ(Placed("num_nodes=3 trainer_ranks=2", false, {{"a", 0}, {"b", 0}, {"c", 0}}), "2 ranks, 0 a node");
  EXPECT_EQ(Placed("num_nodes=3 trainer_ranks=2", true, {{"a", 2}, {"b", 0}, {"c", 0}}), "2 ranks, 0 a node");
  EXPECT_THAT(Placed("num_nodes=3 trainer_ranks=2", true, {{"a", 1}, {"b", 0}, {"c", 0}}),
              HasSubstr("cluster.trainer_ranks: 2, and the nodes have 1 GPU"));
}

TEST(PlaceTrainer, RanksThatDoNotDivideAreRefusedBeforeAnythingStarts) {
  EXPECT_THAT(Placed("num_nodes=2 trainer_ranks=3", false, {{"a", 0}, {"b", 0}}),
              HasSubstr("cluster.trainer_ranks: 3 over 2 nodes (cluster.num_nodes): every node has the same number of ranks; "
                        "expected 2 or 4"));
  const auto tree = config::LoadTree("configs/quickstart_sft.yaml", std::vector<std::string>{"cluster.num_nodes=3"});
  ASSERT_TRUE(tree.ok()) << tree.status();
  EXPECT_THAT(std::string(config::ParseRunConfig(*tree).status().message()),
              HasSubstr("cluster.trainer_ranks: 2 would leave nodes without work: cluster.num_nodes is 3"));
}

TEST(PlaceTrainer, MoreThanTheNodesHaveIsRefused) {
  EXPECT_THAT(Placed("num_nodes=2 trainer_ranks=16", true, {{"a", 8}, {"b", 4}}),
              HasSubstr("cluster.trainer_ranks: 2 nodes with 8 GPUs each are needed; there are a with 8, b with 4"));
  EXPECT_THAT(Placed("num_nodes=2 gpus_per_node=4", true, {{"a", 8}, {"b", 2}}),
              HasSubstr("cluster.gpus_per_node: 2 nodes with 4 GPUs each are needed; there are a with 8, b with 2"));
  EXPECT_THAT(Placed("num_nodes=2", true, {{"a", 8}, {"b", 0}}),
              HasSubstr("cluster.num_nodes: 2 nodes with 1 GPU each are needed; there are a with 8, b with 0"));
  EXPECT_THAT(Placed("num_nodes=2 gpus_per_node=0", true, {{"a", 8}, {"b", 8}}),
              HasSubstr("cluster.gpus_per_node: 0, and the trainer is to run on GPUs"));
}

}  // namespace
}  // namespace manta::controller
