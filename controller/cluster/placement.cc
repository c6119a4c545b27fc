#include "controller/cluster/placement.h"

#include <algorithm>
#include <cctype>
#include <climits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace manta::controller {
namespace {

// How many ranks fit on a node with so much.
int RoomFor(const PlacementRequest& request, int cpu_slots, int num_gpus) {
  int room = INT_MAX;
  if (request.cpu_slots_per_rank > 0) room = std::min(room, cpu_slots / request.cpu_slots_per_rank);
  if (request.gpus_per_rank > 0) room = std::min(room, num_gpus / request.gpus_per_rank);
  return room;
}

int64_t Sum(const std::vector<NodeCapacity>& nodes, int (*room)(const NodeCapacity&, const PlacementRequest&),
            const PlacementRequest& request) {
  int64_t sum = 0;
  for (const NodeCapacity& node : nodes) sum += room(node, request);
  return sum;
}

int RoomEver(const NodeCapacity& node, const PlacementRequest& request) {
  return RoomFor(request, node.cpu_slots, node.num_gpus);
}
int RoomNow(const NodeCapacity& node, const PlacementRequest& request) {
  return RoomFor(request, node.cpu_free, static_cast<int>(node.gpus_free.size()));
}

// "needs 16 GPUs (16 ranks of 1), 8 registered", or why enough in all is still not enough.
std::string Missing(const std::vector<NodeCapacity>& nodes, const PlacementRequest& request) {
  struct Kind {
    const char* name;
    int per_rank;
    int64_t registered = 0;
    int largest = 0;
  } kinds[] = {{"CPU slot", request.cpu_slots_per_rank}, {"GPU", request.gpus_per_rank}};
  for (const NodeCapacity& node : nodes) {
    kinds[0].registered += node.cpu_slots;
    kinds[0].largest = std::max(kinds[0].largest, node.cpu_slots);
    kinds[1].registered += node.num_gpus;
    kinds[1].largest = std::max(kinds[1].largest, node.num_gpus);
  }
  std::vector<std::string> reasons;
  for (const Kind& kind : kinds) {
    const int64_t needed = int64_t{kind.per_rank} * request.num_ranks;
    const char* plural = needed == 1 ? "" : "s";
    if (needed > kind.registered) {
      reasons.push_back(absl::StrCat("needs ", needed, " ", kind.name, plural, " (", request.num_ranks,
                                     request.num_ranks == 1 ? " rank of " : " ranks of ", kind.per_rank, "), ",
                                     kind.registered, " registered"));
    } else if (kind.per_rank > kind.largest) {
      reasons.push_back(absl::StrCat("needs ", kind.per_rank, " ", kind.name,
                                     "s on one node for each rank, the largest node has ", kind.largest));
    }
  }
  if (reasons.empty()) {
    reasons.push_back(absl::StrCat("needs ", request.num_ranks, " places of ", request.cpu_slots_per_rank,
                                   " CPU slots and ", request.gpus_per_rank, " GPUs, each on one node; the nodes have ",
                                   Sum(nodes, RoomEver, request), " such places"));
  }
  return absl::StrJoin(reasons, "; ");
}

}  // namespace

bool NaturalLess(const std::string& a, const std::string& b) {
  size_t i = 0, j = 0;
  const auto digit = [](char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; };
  while (i < a.size() && j < b.size()) {
    if (digit(a[i]) && digit(b[j])) {
      size_t i_end = i, j_end = j;
      while (i_end < a.size() && digit(a[i_end])) ++i_end;
      while (j_end < b.size() && digit(b[j_end])) ++j_end;
      while (i + 1 < i_end && a[i] == '0') ++i;
      while (j + 1 < j_end && b[j] == '0') ++j;
      if (i_end - i != j_end - j) return i_end - i < j_end - j;
      const int order = a.compare(i, i_end - i, b, j, j_end - j);
      if (order != 0) return order < 0;
      i = i_end;
      j = j_end;
    } else if (a[i] != b[j]) {
      return a[i] < b[j];
    } else {
      ++i;
      ++j;
    }
  }
  if (i == a.size() && j == b.size()) return a < b;  // "n-01" and "n-1"
  return i == a.size();
}

absl::StatusOr<std::vector<RankPlacement>> Place(std::vector<NodeCapacity> nodes, const PlacementRequest& request) {
  std::sort(nodes.begin(), nodes.end(), [](const auto& a, const auto& b) { return NaturalLess(a.name, b.name); });
  if (nodes.empty() || Sum(nodes, RoomEver, request) < request.num_ranks) {
    return absl::FailedPreconditionError(
        absl::StrCat(request.role, " ", nodes.empty() ? "has no node to run on" : Missing(nodes, request)));
  }
  if (Sum(nodes, RoomNow, request) < request.num_ranks) {
    return absl::ResourceExhaustedError(absl::StrCat(request.role, " waits for slots that are in use"));
  }
  const NodeCapacity* fullest = nullptr;
  for (const NodeCapacity& node : nodes) {
    const int room = RoomNow(node, request);
    if (room >= request.num_ranks && (fullest == nullptr || room < RoomNow(*fullest, request))) fullest = &node;
  }
  std::vector<NodeCapacity> chosen = fullest != nullptr ? std::vector<NodeCapacity>{*fullest} : nodes;
  std::vector<RankPlacement> placements;
  for (NodeCapacity& node : chosen) {
    const int room = RoomNow(node, request);
    for (int k = 0; k < room && static_cast<int>(placements.size()) < request.num_ranks; ++k) {
      RankPlacement& placement = placements.emplace_back();
      placement.node = node.name;
      placement.gpus.assign(node.gpus_free.begin(), node.gpus_free.begin() + request.gpus_per_rank);
      node.gpus_free.erase(node.gpus_free.begin(), node.gpus_free.begin() + request.gpus_per_rank);
    }
  }
  return placements;
}

}  // namespace manta::controller
