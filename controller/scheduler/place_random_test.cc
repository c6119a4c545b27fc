// Random histories of takes and gives: what is placed fits, a GPU has one holder (or slots of one job), and nothing is
// left once all is given back.
#include <bit>
#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "common/base/random.h"
#include "controller/scheduler/place.h"
#include "gtest/gtest.h"

namespace manta::controller::scheduler {
namespace {

TEST(PlaceRandom, NothingIsTakenTwiceAndNothingIsLost) {
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    RandomStream random(seed);
    ClusterView view;
    const int num_nodes = 1 + static_cast<int>(random.NextBelow(6));
    for (int i = 0; i < num_nodes; ++i) {
      const NodeIndex node = view.Add(absl::StrCat("n", i));
      NodeCapacity has{.cpu_slots = static_cast<int>(random.NextBelow(9)), .memory_bytes = random.NextBelow(9)};
      has.gpus = random.NextBelow(256);
      has.domain = random.NextBelow(2) == 0 ? "" : absl::StrCat("d", random.NextBelow(2));
      view.SetCapacity(node, has);
      view.SetUsable(node, Usable::kYes);
    }
    std::vector<std::pair<v1::PlacementRequest, Placement>> live;
    for (int step = 0; step < 120; ++step) {
      if (!live.empty() && random.NextBelow(3) == 0) {
        const size_t victim = random.NextBelow(live.size());
        for (size_t i = 0; i < live[victim].second.size(); ++i) {
          view.Give(live[victim].second[i], BundleOf(live[victim].first, static_cast<int>(i)),
                    live[victim].first.job());
        }
        live.erase(live.begin() + static_cast<ptrdiff_t>(victim));
      } else {
        v1::PlacementRequest request;
        request.set_job(absl::StrCat("j", random.NextBelow(2)));
        const int kinds = random.NextBelow(4) == 0 ? 2 : 1;
        for (int k = 0; k < kinds; ++k) {
          v1::Bundle* bundle = request.add_bundles();
          bundle->set_cpu_slots(static_cast<int>(random.NextBelow(3)));
          bundle->set_gpus(static_cast<int>(random.NextBelow(3)));
          bundle->set_memory_bytes(random.NextBelow(3));
          if (bundle->gpus() > 0 && random.NextBelow(2) == 0)
            bundle->set_gpu_slot(absl::StrCat("s", random.NextBelow(3)));
        }
        if (kinds == 1) request.set_repeat(1 + static_cast<int>(random.NextBelow(4)));
        request.set_strategy(static_cast<v1::Strategy>(random.NextBelow(5)));
        const auto placed = Place(view, request);
        if (!placed.ok()) {
          EXPECT_FALSE(placed.status().message().empty());
          continue;
        }
        ASSERT_EQ(static_cast<int>(placed->size()), NumRanks(request));
        for (size_t i = 0; i < placed->size(); ++i) {
          const v1::Bundle& bundle = BundleOf(request, static_cast<int>(i));
          ASSERT_EQ(std::popcount((*placed)[i].gpus), bundle.gpus());
          view.Take((*placed)[i], bundle, request.job());
        }
        live.emplace_back(request, *placed);
      }
      std::map<std::pair<NodeIndex, int>, std::multiset<std::string>> holders;
      std::vector<int> cpus(num_nodes, 0);
      std::vector<uint64_t> memory(num_nodes, 0);
      for (const auto& [request, placement] : live) {
        for (size_t i = 0; i < placement.size(); ++i) {
          const v1::Bundle& bundle = BundleOf(request, static_cast<int>(i));
          cpus[placement[i].node] += bundle.cpu_slots();
          memory[placement[i].node] += bundle.memory_bytes();
          for (int gpu = 0; gpu < 64; ++gpu) {
            if ((placement[i].gpus >> gpu & 1) == 0) continue;
            const std::string holder =
                bundle.gpu_slot().empty() ? "whole" : absl::StrCat(request.job(), "/", bundle.gpu_slot());
            holders[{placement[i].node, gpu}].insert(holder);
          }
        }
      }
      for (int i = 0; i < num_nodes; ++i) {
        const NodeView& node = view.node(i);
        ASSERT_LE(cpus[i], node.has.cpu_slots) << "seed " << seed;
        ASSERT_LE(memory[i], node.has.memory_bytes) << "seed " << seed;
        ASSERT_EQ(cpus[i], node.cpu_used);
        ASSERT_EQ(node.gpus_used & ~node.has.gpus, 0u);
      }
      for (const auto& [gpu, names] : holders) {
        ASSERT_NE(view.node(gpu.first).gpus_used >> gpu.second & 1, 0u);
        std::set<std::string> jobs, distinct(names.begin(), names.end());
        for (const std::string& name : names) jobs.insert(name.substr(0, name.find('/')));
        ASSERT_EQ(distinct.size(), names.size()) << "seed " << seed << ": a slot is held twice";
        ASSERT_EQ(jobs.size(), 1u) << "seed " << seed << ": two jobs, or a whole holder and a slot";
      }
    }
    for (const auto& [request, placement] : live) {
      for (size_t i = 0; i < placement.size(); ++i) {
        view.Give(placement[i], BundleOf(request, static_cast<int>(i)), request.job());
      }
    }
    for (int i = 0; i < num_nodes; ++i) {
      EXPECT_EQ(view.node(i).cpu_used, 0);
      EXPECT_EQ(view.node(i).gpus_used, 0u);
      EXPECT_EQ(view.node(i).memory_used, 0u);
      EXPECT_TRUE(view.node(i).shared.empty());
    }
  }
}

}  // namespace
}  // namespace manta::controller::scheduler
