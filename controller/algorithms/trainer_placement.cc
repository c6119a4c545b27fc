#include "controller/algorithms/trainer_placement.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace manta::controller {
namespace {

constexpr char kRanks[] = "cluster.trainer_ranks", kNodes[] = "cluster.num_nodes", kGpus[] = "cluster.gpus_per_node";

std::string GpuText(int64_t gpus) { return absl::StrCat(gpus, gpus == 1 ? " GPU" : " GPUs"); }

std::string Listed(const std::vector<JobCluster::NodeGpus>& nodes) {
  return absl::StrJoin(nodes, ", ", [](std::string* out, const JobCluster::NodeGpus& node) {
    absl::StrAppend(out, node.name, " with ", node.gpus);
  });
}

TrainerPlacement OnOneNode(const config::RunConfig& run, bool cuda, int gpus) {
  TrainerPlacement placement{.ranks = static_cast<int>(run.cluster.trainer_ranks)};
  if (placement.ranks == 0) placement.ranks = cuda ? std::max(1, gpus) : 1;
  if (cuda && placement.ranks > gpus) {
    placement.warning = absl::StrCat(kRanks, " is ", placement.ranks, ", and there ",
                                     gpus == 1 ? "is 1 GPU" : absl::StrCat("are ", gpus, " GPUs"), ": training with ", gpus,
                                     " (NCCL takes one rank a GPU)");
    placement.ranks = gpus;
  }
  return placement;
}

}  // namespace

TrainerPlacement PlacementOf(const config::RunConfig& run, int ranks) {
  const int nodes = static_cast<int>(run.cluster.num_nodes);
  return {.ranks = ranks, .per_node = nodes > 1 && ranks >= nodes ? ranks / nodes : 0, .one_node = nodes == 1};
}

absl::StatusOr<TrainerPlacement> PlaceTrainer(const config::Tree& tree, const config::RunConfig& run, bool cuda,
                                              const std::vector<JobCluster::NodeGpus>& nodes) {
  std::vector<int> gpus;
  for (const JobCluster::NodeGpus& node : nodes) gpus.push_back(node.gpus);
  std::sort(gpus.begin(), gpus.end(), std::greater<>());
  const int count = static_cast<int>(run.cluster.num_nodes);
  if (count == 1) return OnOneNode(run, cuda, gpus.empty() ? 0 : gpus[0]);

  const int asked = static_cast<int>(run.cluster.trainer_ranks);
  // What so many nodes have at least.
  const int have = static_cast<int>(gpus.size()) < count ? 0 : gpus[count - 1];
  TrainerPlacement placement = PlacementOf(run, asked);
  if (asked > 0 && asked < count) {
    const int all = std::accumulate(gpus.begin(), gpus.end(), 0);
    if (cuda && asked > all) {
      return tree.Error(kRanks, absl::StrCat(asked, ", and the nodes have ", GpuText(all), " (NCCL takes one rank a GPU)"));
    }
    return placement;
  }
  if (asked > 0) {
    // The configuration has been checked: it divides.
  } else if (!cuda) {
    placement.per_node = 1;
  } else {
    placement.per_node = static_cast<int>(run.cluster.gpus_per_node.value_or(have));
  }
  placement.ranks = placement.per_node * count;
  if (placement.per_node == 0 && have > 0) return tree.Error(kGpus, "0, and the trainer is to run on GPUs; expected at least 1");
  if (cuda && (placement.per_node > have || have == 0)) {
    const char* key = asked > 0 ? kRanks : run.cluster.gpus_per_node ? kGpus : kNodes;
    return tree.Error(key, absl::StrCat(count, " nodes with ", GpuText(std::max(1, placement.per_node)),
                                        " each are needed; there are ", Listed(nodes)));
  }
  return placement;
}

}  // namespace manta::controller
