#include "controller/scheduler/place.h"

#include <bit>
#include <chrono>
#include <set>

#include "absl/strings/str_cat.h"
#include "controller/scheduler/natural_order.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace manta::controller::scheduler {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

struct Node {
  std::string name;
  int cpus = 0, gpus = 0;
  std::string domain;
  std::map<std::string, std::string> labels;
};

ClusterView View(const std::vector<Node>& nodes) {
  ClusterView view;
  for (const Node& node : nodes) {
    const NodeIndex index = view.Add(node.name);
    NodeCapacity has{.cpu_slots = node.cpus, .memory_bytes = 64, .domain = node.domain, .labels = node.labels};
    has.gpus = (uint64_t{1} << node.gpus) - 1;
    view.SetCapacity(index, has);
    view.SetUsable(index, Usable::kYes);
  }
  return view;
}

v1::PlacementRequest Request(const std::string& name, int ranks, int cpus, int gpus, v1::Strategy strategy = {}) {
  v1::PlacementRequest request;
  request.set_name(name);
  request.set_repeat(ranks);
  request.add_bundles()->set_cpu_slots(cpus);
  request.mutable_bundles(0)->set_gpus(gpus);
  request.set_strategy(strategy);
  return request;
}

std::vector<std::string> Nodes(const ClusterView& view, const Placement& placement) {
  std::vector<std::string> names;
  for (const PlacedRank& rank : placement) names.push_back(view.node(rank.node).name);
  return names;
}

void Take(ClusterView& view, const Placement& placement, const v1::PlacementRequest& request) {
  for (size_t i = 0; i < placement.size(); ++i) {
    view.Take(placement[i], BundleOf(request, static_cast<int>(i)), request.job());
  }
}

std::string Refusal(const ClusterView& view, const v1::PlacementRequest& request) {
  const auto result = Place(view, request);
  EXPECT_EQ(result.status().code(), absl::StatusCode::kFailedPrecondition) << result.status();
  return std::string(result.status().message());
}

TEST(Place, SaysWhatIsMissing) {
  EXPECT_EQ(Refusal(View({{"a", 2, 0}}), Request("train", 3, 1, 0)),
            "train needs 3 CPU slots (3 ranks of 1), 2 registered");
  EXPECT_EQ(Refusal(View({{"a", 64, 4}, {"b", 64, 4}}), Request("train", 16, 1, 1)),
            "train needs 16 GPUs (16 ranks of 1), 8 registered");
  EXPECT_THAT(Refusal(View({{"a", 8, 2}, {"b", 8, 2}}), Request("gen", 1, 0, 4)),
              HasSubstr("needs 4 GPUs on one node for each rank, the largest node has 2"));
  EXPECT_THAT(Refusal(View({{"a", 8, 3}, {"b", 8, 3}}), Request("gen", 3, 0, 2)),
              HasSubstr("the nodes have 2 such places"));
  EXPECT_EQ(Refusal(View({}), Request("train", 1, 1, 0)), "train has no node to run on");
  EXPECT_THAT(Refusal(View({{"a", 8, 4}, {"b", 8, 4}}), Request("gen", 8, 0, 1, v1::STRATEGY_STRICT_PACK)),
              HasSubstr("needs one node with room for 8 ranks of 0 CPU slots and 1 GPUs (STRICT_PACK), the largest has "
                        "room for 4"));
  EXPECT_THAT(Refusal(View({{"a", 8, 4}, {"b", 8, 4}}), Request("gen", 3, 0, 1, v1::STRATEGY_STRICT_SPREAD)),
              HasSubstr("needs 3 nodes with 0 CPU slots and 1 GPUs each (STRICT_SPREAD), 2 registered"));
  v1::PlacementRequest segments = Request("train", 12, 0, 1);
  segments.set_segment(6);
  EXPECT_THAT(Refusal(View({{"a", 8, 4, "A"}, {"b", 8, 4, "A"}, {"c", 8, 4, "B"}}), segments),
              HasSubstr("needs 2 segments of 6 ranks, each in one NVLink domain; the domains have room for 1"));
}

v1::PlacementRequest PerNode(int ranks, int per_node, int gpus) {
  v1::PlacementRequest request = Request("train", ranks, gpus == 0 ? 1 : 0, gpus);
  request.set_ranks_per_node(per_node);
  return request;
}

TEST(Place, SoManyRanksOnEachNode) {
  // In their order, and on no node more than that, though one would suffice.
  const ClusterView wide = View({{"n10", 8, 0}, {"n2", 8, 0}, {"n1", 8, 0}});
  EXPECT_THAT(Nodes(wide, *Place(wide, PerNode(2, 1, 0))), ElementsAre("n1", "n2"));
  EXPECT_THAT(Nodes(wide, *Place(wide, PerNode(6, 2, 0))), ElementsAre("n1", "n1", "n2", "n2", "n10", "n10"));
  // In as few domains as possible, the nodes with too little room left out.
  ClusterView racks = View({{"a0", 9, 8, "A"}, {"a1", 9, 8, "A"}, {"b0", 9, 8, "B"}, {"b1", 9, 8, "B"}, {"b2", 9, 8, "B"}});
  EXPECT_THAT(Nodes(racks, *Place(racks, PerNode(12, 4, 1))),
              ElementsAre("b0", "b0", "b0", "b0", "b1", "b1", "b1", "b1", "b2", "b2", "b2", "b2"));
  const v1::PlacementRequest five = Request("other", 5, 0, 1);
  Take(racks, *Place(racks, five), five);  // the gap that it leaves on a0 is of three
  const auto placed = Place(racks, PerNode(16, 4, 1));
  ASSERT_TRUE(placed.ok()) << placed.status();
  EXPECT_THAT(Nodes(racks, *placed), Not(Contains("a0")));
  EXPECT_EQ((*placed)[0].gpus, 1u);
  EXPECT_EQ((*placed)[3].gpus, 8u) << "GPUs by index";
  EXPECT_EQ(Place(racks, PerNode(20, 4, 1)).status().code(), absl::StatusCode::kResourceExhausted);
}

TEST(Place, SoManyRanksOnEachNodeSaysWhatIsMissing) {
  const ClusterView view = View({{"a", 9, 8}, {"b", 9, 4}, {"c", 9, 4}});
  EXPECT_EQ(Refusal(view, PerNode(16, 8, 1)),
            "train needs 2 nodes with room for 8 ranks of 0 CPU slots and 1 GPUs each, 1 registered");
  EXPECT_EQ(Refusal(View({{"a", 8, 0}}), PerNode(2, 1, 0)),
            "train needs 2 nodes with room for 1 rank of 1 CPU slots and 0 GPUs each, 1 registered");
  EXPECT_TRUE(absl::IsInvalidArgument(Place(view, PerNode(6, 4, 1)).status()));
  v1::PlacementRequest strict = PerNode(8, 4, 1);
  strict.set_strategy(v1::STRATEGY_STRICT_PACK);
  EXPECT_TRUE(absl::IsInvalidArgument(Place(view, strict).status()));
  strict.set_strategy(v1::STRATEGY_PACK);
  EXPECT_TRUE(Place(view, strict).ok());
  strict.set_segment(6);
  EXPECT_TRUE(absl::IsInvalidArgument(Place(view, strict).status()));
}

TEST(Place, SegmentsOfWholeNodes) {
  const ClusterView view = View({{"a0", 9, 4, "A"}, {"a1", 9, 4, "A"}, {"a2", 9, 4, "A"}, {"b0", 9, 4, "B"}, {"b1", 9, 4, "B"}});
  v1::PlacementRequest request = PerNode(16, 4, 1);  // two segments of two nodes
  request.set_segment(8);
  const auto placed = Place(view, request);
  ASSERT_TRUE(placed.ok()) << placed.status();
  const std::vector<std::string> nodes = Nodes(view, *placed);
  EXPECT_THAT(std::vector<std::string>({nodes[0], nodes[4], nodes[8], nodes[12]}), ElementsAre("a0", "a1", "b0", "b1"));
}

TEST(Place, SaysWhichNodesDoNotCount) {
  ClusterView view =
      View({{"node-0", 8, 8, "", {{"zone", "a"}}}, {"node-1", 8, 8}, {"node-2", 8, 8}, {"node-3", 8, 8}});
  view.SetUsable(view.Find("node-3"), Usable::kAbsent);
  v1::PlacementRequest request = Request("train", 16, 0, 1);
  (*request.mutable_selector())["zone"] = "a";
  EXPECT_EQ(Refusal(view, request),
            "train needs 16 GPUs (16 ranks of 1), 8 registered; 2 nodes: label zone=a missing; node-3 absent");
  request.clear_selector();
  request.set_repeat(24);
  view.SetUsable(view.Find("node-2"), Usable::kDraining);
  request.add_avoid("node-1");
  EXPECT_EQ(Refusal(view, request),
            "train needs 24 GPUs (24 ranks of 1), 8 registered; 1 node to be avoided; 1 node drained; node-3 absent");
  // A silent node is waited for.
  view.SetUsable(view.Find("node-0"), Usable::kSuspect);
  EXPECT_EQ(Place(view, Request("train", 9, 0, 1)).status().code(), absl::StatusCode::kResourceExhausted);
}

TEST(Place, RefusesNonsense) {
  const ClusterView view = View({{"a", 8, 8}});
  const auto code = [&](const v1::PlacementRequest& request) { return Place(view, request).status().code(); };
  EXPECT_EQ(code(v1::PlacementRequest()), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(Request("x", -1, 1, 0)), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(Request("x", 1, -1, 0)), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(Request("x", 100000, 0, 0)), absl::StatusCode::kInvalidArgument);
}

TEST(Place, WaitsForWhatIsInUse) {
  ClusterView view = View({{"a", 4, 0}});
  Take(view, Place(view, Request("x", 3, 1, 0)).value(), Request("x", 3, 1, 0));
  EXPECT_EQ(Place(view, Request("train", 2, 1, 0)).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(Place(view, Request("train", 1, 1, 0)).ok());
  EXPECT_TRUE(Place(view, Request("reward", 8, 0, 0)).ok());  // asks for nothing
}

TEST(Place, KeepsRanksTogetherInTopologyOrder) {
  const ClusterView view = View({{"node-10", 2, 2}, {"node-2", 2, 2}});
  const Placement spread = Place(view, Request("train", 4, 1, 1)).value();
  EXPECT_THAT(Nodes(view, spread), ElementsAre("node-2", "node-2", "node-10", "node-10"));
  EXPECT_EQ(spread[0].gpus, 1u);
  EXPECT_EQ(spread[1].gpus, 2u);
  EXPECT_EQ(spread[2].gpus, 1u);
  // One node has room for all: the fullest such.
  const ClusterView uneven = View({{"a", 8, 8}, {"b", 8, 4}});
  EXPECT_THAT(Nodes(uneven, Place(uneven, Request("train", 4, 1, 1)).value()), ElementsAre("b", "b", "b", "b"));
}

TEST(Place, PrefersOneNvlinkDomain) {
  // Four of eight in domain A (two nodes with 2), six in B on three.
  const ClusterView view =
      View({{"n1", 8, 2, "B"}, {"n2", 8, 2, "A"}, {"n3", 8, 2, "B"}, {"n4", 8, 2, "A"}, {"n5", 8, 2, "B"}});
  EXPECT_THAT(Nodes(view, Place(view, Request("t", 4, 0, 1)).value()), ElementsAre("n2", "n2", "n4", "n4"));
  EXPECT_THAT(Nodes(view, Place(view, Request("t", 6, 0, 1)).value()), ElementsAre("n1", "n1", "n3", "n3", "n5", "n5"));
  v1::PlacementRequest segments = Request("t", 8, 0, 1);
  segments.set_segment(4);
  EXPECT_THAT(Nodes(view, Place(view, segments).value()), ElementsAre("n2", "n2", "n4", "n4", "n1", "n1", "n3", "n3"));
}

TEST(Place, SpreadsOverDomainsThenNodes) {
  const ClusterView view = View({{"a1", 8, 0, "A"}, {"a2", 8, 0, "A"}, {"b1", 8, 0, "B"}, {"b2", 8, 0, "B"}});
  EXPECT_THAT(Nodes(view, Place(view, Request("g", 2, 1, 0, v1::STRATEGY_SPREAD)).value()), ElementsAre("a1", "b1"));
  EXPECT_THAT(Nodes(view, Place(view, Request("g", 4, 1, 0, v1::STRATEGY_SPREAD)).value()),
              ElementsAre("a1", "a2", "b1", "b2"));
  EXPECT_THAT(Nodes(view, Place(view, Request("g", 6, 1, 0, v1::STRATEGY_SPREAD)).value()),
              ElementsAre("a1", "a1", "a2", "b1", "b1", "b2"));
}

TEST(Place, SlotsShareAGpu) {
  ClusterView view = View({{"a", 8, 2}, {"b", 8, 2}});
  const auto slot = [](const std::string& job, const std::string& name, int ranks) {
    v1::PlacementRequest request = Request(name, ranks, 0, 1);
    request.set_job(job);
    request.mutable_bundles(0)->set_gpu_slot(name);
    return request;
  };
  const Placement train = Place(view, slot("j", "train", 2)).value();
  Take(view, train, slot("j", "train", 2));
  const Placement gen = Place(view, slot("j", "gen", 2)).value();
  EXPECT_EQ(gen, train);  // beside the trainers, rank by rank
  Take(view, gen, slot("j", "gen", 2));
  EXPECT_NE(Place(view, slot("j", "gen", 2)).value()[0].node, gen[0].node);    // a name is held once
  EXPECT_NE(Place(view, slot("k", "gen", 2)).value()[0].node, gen[0].node);    // and a GPU is one job's
  EXPECT_NE(Place(view, Request("x", 2, 0, 1)).value()[0].node, gen[0].node);  // nobody has it whole
  EXPECT_EQ(Place(view, Request("x", 3, 0, 1)).status().code(), absl::StatusCode::kResourceExhausted);
  for (int i = 0; i < 2; ++i) view.Give(gen[i], slot("j", "gen", 2).bundles(0), "j");
  for (int i = 0; i < 2; ++i) view.Give(train[i], slot("j", "train", 2).bundles(0), "j");
  EXPECT_TRUE(Place(view, Request("x", 4, 0, 1)).ok());
  // Only the names that the node allows.
  NodeCapacity has = view.node(0).has;
  has.shared_slots = {{0, {"train"}}, {1, {"train"}}};
  view.SetCapacity(0, has);
  EXPECT_EQ(Place(view, slot("j", "gen", 1)).value()[0].node, 1);
}

TEST(Place, UnequalRanksKeepTheirOrder) {
  const ClusterView view = View({{"a", 8, 4}, {"b", 8, 2}});
  v1::PlacementRequest request = Request("mixed", 0, 1, 1);
  request.clear_repeat();
  request.add_bundles()->set_gpus(4);
  request.add_bundles()->set_gpus(1);
  EXPECT_THAT(Nodes(view, Place(view, request).value()), ElementsAre("b", "a", "b"));
  request.add_bundles()->set_gpus(1);
  EXPECT_THAT(Refusal(view, request), HasSubstr("needs 7 GPUs, 6 registered"));
  request.mutable_bundles(3)->set_gpus(0);
  request.set_strategy(v1::STRATEGY_STRICT_SPREAD);
  EXPECT_THAT(Refusal(view, request), HasSubstr("found no way to place its 4 unequal ranks"));
}

TEST(Place, RanksThatAskForNothingGoWhereProcessorsAreIdle) {
  ClusterView view = View({{"a", 2}, {"b", 2, 1}, {"c", 3}});
  const auto nodes = [&](const v1::PlacementRequest& request) { return Nodes(view, Place(view, request).value()); };
  for (const char* full : {"a", "c"}) {
    const NodeIndex node = view.Find(full);
    v1::Bundle bundle;
    bundle.set_cpu_slots(view.node(node).has.cpu_slots);
    view.Take({.node = node}, bundle, "job");
  }
  EXPECT_THAT(nodes(Request("gen", 2, 0, 0)), ElementsAre("b", "b"));
  EXPECT_THAT(nodes(Request("gen", 3, 0, 0, v1::STRATEGY_SPREAD)), ElementsAre("a", "b", "c"));  // more than is idle
  view = View({{"a", 2}, {"b", 2, 1}});
  v1::PlacementRequest looks_on = Request("gen", 1, 0, 0);
  looks_on.mutable_bundles(0)->set_gpu_slot("gen");
  EXPECT_THAT(nodes(looks_on), ElementsAre("b"));
}

TEST(Place, MemoryCounts) {
  const ClusterView view = View({{"a", 8, 0}, {"b", 8, 0}});
  v1::PlacementRequest request = Request("m", 4, 0, 0, v1::STRATEGY_SPREAD);
  request.mutable_bundles(0)->set_memory_bytes(32);
  EXPECT_THAT(Nodes(view, Place(view, request).value()), ElementsAre("a", "a", "b", "b"));
  request.set_repeat(5);
  EXPECT_THAT(Refusal(view, request), HasSubstr("needs 160 bytes of memory (5 ranks of 32), 128 registered"));
}

TEST(Place, AGangOf512GpusAmongAThousandNodesIsQuick) {
  std::vector<Node> nodes;
  for (int i = 0; i < 1000; ++i) nodes.push_back({absl::StrCat("node-", i), 64, 8, absl::StrCat("rack-", i / 9)});
  ClusterView view = View(nodes);
  const auto before = std::chrono::steady_clock::now();
  const Placement gang = Place(view, Request("train", 512, 4, 1)).value();
  const double ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - before).count();
  std::printf("512 GPUs among 1,000 nodes: %.3f ms\n", ms);
  EXPECT_LT(ms, 10);
  std::set<NodeIndex> used;
  for (const PlacedRank& rank : gang) used.insert(rank.node);
  EXPECT_EQ(used.size(), 64u);
}

TEST(NaturalOrder, CountsAsPeopleDo) {
  EXPECT_TRUE(NaturalLess("node-2", "node-10"));
  EXPECT_FALSE(NaturalLess("node-10", "node-2"));
  EXPECT_TRUE(NaturalLess("a9z", "a10"));
  EXPECT_TRUE(NaturalLess("a", "a1"));
  EXPECT_FALSE(NaturalLess("a", "a"));
  EXPECT_NE(NaturalLess("n-01", "n-1"), NaturalLess("n-1", "n-01"));
}

}  // namespace
}  // namespace manta::controller::scheduler
