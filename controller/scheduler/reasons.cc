#include "controller/scheduler/reasons.h"

#include <algorithm>
#include <bit>
#include <map>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "controller/scheduler/place.h"

namespace manta::controller::scheduler {
namespace {

// The first label that the node lacks, as "zone=a"; empty if it has all.
std::string LackedLabel(const NodeView& node, const v1::PlacementRequest& request) {
  std::string lacked;
  for (const auto& [key, value] : request.selector()) {
    const auto found = node.has.labels.find(key);
    if (found != node.has.labels.end() && found->second == value) continue;
    const std::string label = absl::StrCat(key, "=", value);
    if (lacked.empty() || label < lacked) lacked = label;  // a map's order is nobody's
  }
  return lacked;
}

bool Avoided(const NodeView& node, const v1::PlacementRequest& request) {
  return std::find(request.avoid().begin(), request.avoid().end(), node.name) != request.avoid().end();
}

std::string Nodes(int64_t count) {
  return absl::StrCat(count, count == 1 ? " node" : " nodes");
}

struct Kind {
  const char* name;  // of one
  const char* plural;
  int64_t needed = 0;    // by all ranks
  int64_t per_rank = 0;  // by the largest
  int64_t registered = 0;
  int64_t largest = 0;  // node
};

// What of a kind is missing; empty if that is not it.
std::string Shortage(const Kind& kind, int num_ranks, bool equal) {
  if (kind.needed > kind.registered) {
    const std::string ranks =
        equal ? absl::StrCat(" (", num_ranks, num_ranks == 1 ? " rank of " : " ranks of ", kind.per_rank, ")") : "";
    return absl::StrCat("needs ", kind.needed, " ", kind.needed == 1 ? kind.name : kind.plural, ranks, ", ",
                        kind.registered, " registered");
  }
  if (kind.per_rank > kind.largest) {
    return absl::StrCat("needs ", kind.per_rank, " ", kind.name, "s on one node for ", equal ? "each" : "a",
                        " rank, the largest node has ", kind.largest);
  }
  return "";
}

std::string OfStrategy(const ClusterView& view, const v1::PlacementRequest& request,
                       const std::vector<NodeIndex>& eligible) {
  const int num_ranks = NumRanks(request);
  if (request.bundles_size() > 1) {
    return absl::StrCat("found no way to place its ", num_ranks, " unequal ranks");
  }
  const v1::Bundle& bundle = request.bundles(0);
  const std::string place = absl::StrCat(bundle.cpu_slots(), " CPU slots and ", bundle.gpus(), " GPUs");
  int64_t places = 0, nodes = 0, largest = 0, segments = 0;
  std::map<std::string, int64_t> domains;
  for (NodeIndex index : eligible) {
    const int64_t room = view.node(index).RoomFor(bundle, request.job(), true, num_ranks);
    places += room;
    nodes += room > 0 ? 1 : 0;
    largest = std::max(largest, room);
    domains[DomainName(view.node(index))] +=
        request.strategy() == v1::STRATEGY_STRICT_SPREAD ? std::min<int64_t>(room, 1) : room;
  }
  if (const int per_node = request.ranks_per_node(); per_node > 0 && places >= num_ranks) {
    int64_t suffice = 0;
    for (NodeIndex index : eligible) {
      if (view.node(index).RoomFor(bundle, request.job(), true, num_ranks) >= per_node) ++suffice;
    }
    if (suffice < num_ranks / per_node) {
      return absl::StrCat("needs ", num_ranks / per_node, " nodes with room for ", per_node, per_node == 1 ? " rank of " : " ranks of ",
                          place, " each, ", suffice, " registered");
    }
  }
  if (request.strategy() == v1::STRATEGY_STRICT_PACK && places >= num_ranks) {
    return absl::StrCat("needs one node with room for ", num_ranks, " ranks of ", place,
                        " (STRICT_PACK), the largest has room for ", largest);
  }
  if (request.strategy() == v1::STRATEGY_STRICT_SPREAD && places >= num_ranks && nodes < num_ranks) {
    return absl::StrCat("needs ", num_ranks, " nodes with ", place, " each (STRICT_SPREAD), ", nodes, " registered");
  }
  if (request.segment() > 1 && places >= num_ranks) {
    for (const auto& [name, room] : domains) segments += room / request.segment();
    return absl::StrCat("needs ", (num_ranks + request.segment() - 1) / request.segment(), " segments of ",
                        request.segment(), " ranks, each in one NVLink domain; the domains have room for ", segments);
  }
  return absl::StrCat("needs ", num_ranks, " places of ", place, ", each on one node; the nodes have ", places,
                      " such places");
}

}  // namespace

bool Eligible(const NodeView& node, const v1::PlacementRequest& request) {
  if (request.selector_size() > 0 && !LackedLabel(node, request).empty()) return false;
  return request.avoid().empty() || !Avoided(node, request);
}

std::string Missing(const ClusterView& view, const v1::PlacementRequest& request) {
  std::vector<NodeIndex> eligible;
  std::map<std::string, int64_t> unlabelled;
  std::vector<std::string> absent;
  int64_t draining = 0, avoided = 0;
  for (NodeIndex index : view.order()) {
    const NodeView& node = view.node(index);
    const std::string lacked = LackedLabel(node, request);
    if (node.usable == Usable::kAbsent) {
      absent.push_back(node.name);
    } else if (!lacked.empty()) {
      ++unlabelled[lacked];
    } else if (Avoided(node, request)) {
      ++avoided;
    } else if (node.usable == Usable::kDraining) {
      ++draining;
    } else {
      eligible.push_back(index);
    }
  }
  const int num_ranks = NumRanks(request);
  Kind kinds[] = {{"CPU slot", "CPU slots"}, {"GPU", "GPUs"}, {"byte of memory", "bytes of memory"}};
  for (int rank = 0; rank < num_ranks; ++rank) {
    const v1::Bundle& bundle = BundleOf(request, rank);
    const int64_t amounts[] = {bundle.cpu_slots(), bundle.gpus(), static_cast<int64_t>(bundle.memory_bytes())};
    for (int k = 0; k < 3; ++k) {
      kinds[k].needed += amounts[k];
      kinds[k].per_rank = std::max(kinds[k].per_rank, amounts[k]);
    }
  }
  for (NodeIndex index : eligible) {
    const NodeView& node = view.node(index);
    const v1::Bundle& bundle = request.bundles(0);
    const int64_t amounts[] = {node.has.cpu_slots, std::popcount(node.GpusFor(bundle, request.job(), true)),
                               static_cast<int64_t>(node.has.memory_bytes)};
    for (int k = 0; k < 3; ++k) {
      kinds[k].registered += amounts[k];
      kinds[k].largest = std::max(kinds[k].largest, amounts[k]);
    }
  }
  std::vector<std::string> reasons;
  for (const Kind& kind : kinds) {
    std::string shortage = Shortage(kind, num_ranks, request.bundles_size() == 1);
    if (!shortage.empty()) reasons.push_back(std::move(shortage));
  }
  if (eligible.empty()) reasons = {"has no node to run on"};
  if (reasons.empty()) reasons.push_back(OfStrategy(view, request, eligible));
  for (const auto& [label, count] : unlabelled)
    reasons.push_back(absl::StrCat(Nodes(count), ": label ", label, " missing"));
  if (avoided > 0) reasons.push_back(absl::StrCat(Nodes(avoided), " to be avoided"));
  if (draining > 0) reasons.push_back(absl::StrCat(Nodes(draining), " drained"));
  constexpr size_t kNamed = 5;
  for (size_t i = 0; i < std::min(absent.size(), kNamed); ++i) reasons.push_back(absl::StrCat(absent[i], " absent"));
  if (absent.size() > kNamed) reasons.push_back(absl::StrCat(absent.size() - kNamed, " more absent"));
  return absl::StrCat(NameOf(request), " ", absl::StrJoin(reasons, "; "));
}

}  // namespace manta::controller::scheduler
