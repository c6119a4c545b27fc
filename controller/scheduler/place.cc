#include "controller/scheduler/place.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <optional>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/status.h"
#include "controller/scheduler/distribute.h"
#include "controller/scheduler/reasons.h"

namespace manta::controller::scheduler {
namespace {

bool Equal(const v1::Bundle& a, const v1::Bundle& b) {
  return a.cpu_slots() == b.cpu_slots() && a.gpus() == b.gpus() && a.memory_bytes() == b.memory_bytes() &&
         a.gpu_slot() == b.gpu_slot();
}

bool AllEqual(const v1::PlacementRequest& request) {
  for (int i = 1; i < request.bundles_size(); ++i) {
    if (!Equal(request.bundles(0), request.bundles(i))) return false;
  }
  return true;
}

bool UsableNow(const NodeView& node) {
  return node.usable == Usable::kYes;
}
// With everything free and everybody heard of again.
bool UsableEver(const NodeView& node) {
  return node.usable <= Usable::kHeld;
}

bool Reserved(const std::vector<bool>* reserved, NodeIndex node) {
  return reserved != nullptr && node < static_cast<NodeIndex>(reserved->size()) && (*reserved)[node];
}

// The lowest GPUs; for a slot those that the job shares already come first: that is what slots are for.
uint64_t PickGpus(const NodeView& node, const v1::Bundle& bundle, const std::string& job) {
  uint64_t candidates = node.GpusFor(bundle, job, /*as_if_empty=*/false), picked = 0;
  uint64_t shared = candidates & node.gpus_used;
  for (int i = 0; i < bundle.gpus(); ++i) {
    uint64_t& from = shared != 0 ? shared : candidates;
    const uint64_t gpu = from & -from;
    MANTA_CHECK(gpu != 0) << node.name;
    picked |= gpu;
    shared &= ~gpu;
    candidates &= ~gpu;
  }
  return picked;
}

bool AsksForNothing(const v1::Bundle& bundle) {
  return bundle.cpu_slots() == 0 && bundle.gpus() == 0 && bundle.memory_bytes() == 0;
}

// CPU slots that nobody holds; none on a node without GPUs for a rank that is to see one.
int FreeSlots(const NodeView& node, const v1::Bundle& bundle) {
  if (!bundle.gpu_slot().empty() && node.has.gpus == 0) return 0;
  return std::max(0, node.has.cpu_slots - node.cpu_used);
}

std::optional<std::vector<Share>> Shares(const ClusterView& view, const v1::PlacementRequest& request, bool ever,
                                         const std::vector<bool>* reserved, std::vector<NodeIndex>* nodes) {
  constexpr int kRoomCap = 1 << 20;  // of ranks that ask for nothing
  const int num_ranks = NumRanks(request);
  const v1::Bundle& bundle = request.bundles(0);
  std::vector<RoomOnNode> rooms, free;
  rooms.reserve(view.order().size());
  nodes->reserve(view.order().size());
  const std::string* domain = nullptr;
  int domain_index = -1;
  for (NodeIndex index : view.order()) {
    const NodeView& node = view.node(index);
    if (!(ever ? UsableEver(node) : UsableNow(node)) || Reserved(reserved, index) || !Eligible(node, request)) continue;
    if (domain == nullptr || *domain != DomainName(node)) ++domain_index;
    domain = &DomainName(node);
    rooms.push_back({domain_index, node.RoomFor(bundle, request.job(), ever, kRoomCap)});
    if (AsksForNothing(bundle)) free.push_back({domain_index, FreeSlots(node, bundle)});
    nodes->push_back(index);
  }
  if (const int per_node = request.ranks_per_node(); per_node > 0) {
    // A node's ranks as one, of which there is room for one on a node.
    for (RoomOnNode& room : rooms) room.room = room.room >= per_node ? 1 : 0;
    auto shares = Distribute(std::move(rooms), num_ranks / per_node, v1::STRATEGY_STRICT_SPREAD, request.segment() / per_node);
    if (!shares.has_value()) return std::nullopt;
    for (Share& share : *shares) share.ranks *= per_node;
    return shares;
  }
  // Ranks that ask for nothing go where processors are idle, while there are such, and else beside those who hold them.
  if (!free.empty()) {
    auto shares = Distribute(std::move(free), num_ranks, request.strategy(), request.segment());
    if (shares.has_value()) return shares;
  }
  return Distribute(std::move(rooms), num_ranks, request.strategy(), request.segment());
}

absl::StatusOr<Placement> PlaceEqual(const ClusterView& view, const v1::PlacementRequest& request,
                                     const std::vector<bool>* reserved) {
  std::vector<NodeIndex> nodes;
  const auto shares = Shares(view, request, /*ever=*/false, reserved, &nodes);
  if (!shares.has_value()) {
    std::vector<NodeIndex> ignored;
    if (!Shares(view, request, /*ever=*/true, nullptr, &ignored).has_value()) {
      return absl::FailedPreconditionError(Missing(view, request));
    }
    return absl::ResourceExhaustedError(absl::StrCat(NameOf(request), " waits for slots that are in use"));
  }
  const v1::Bundle& bundle = request.bundles(0);
  Placement placement;
  placement.reserve(NumRanks(request));
  for (const Share& share : *shares) {
    const NodeIndex index = nodes[share.node];
    if (bundle.gpus() == 0) {
      placement.insert(placement.end(), share.ranks, {index, 0});
      continue;
    }
    NodeView node = view.node(index);
    for (int i = 0; i < share.ranks; ++i) {
      const uint64_t gpus = PickGpus(node, bundle, request.job());
      placement.push_back({index, gpus});
      node.gpus_used |= gpus;
      // Not to be picked again, shared or not.
      std::erase_if(node.shared, [&](const SharedGpu& gpu) { return (gpus >> gpu.gpu & 1) != 0; });
    }
  }
  return placement;
}

// Largest first onto the node where the least is left over (SPREAD: onto the emptiest of the request's own).
absl::StatusOr<Placement> PlaceUnequalIn(ClusterView view, const v1::PlacementRequest& request,
                                         const std::vector<bool>* reserved, NodeIndex only) {
  const int num_ranks = NumRanks(request);
  std::vector<int> ranks(num_ranks);
  std::iota(ranks.begin(), ranks.end(), 0);
  std::stable_sort(ranks.begin(), ranks.end(), [&](int a, int b) {
    const v1::Bundle &x = BundleOf(request, a), &y = BundleOf(request, b);
    return std::tuple(x.gpus(), x.cpu_slots(), x.memory_bytes()) >
           std::tuple(y.gpus(), y.cpu_slots(), y.memory_bytes());
  });
  Placement placement(num_ranks);
  std::vector<int> mine(view.order().size() + 1, 0);
  mine.resize(1 + (view.order().empty() ? 0 : *std::max_element(view.order().begin(), view.order().end())), 0);
  for (int rank : ranks) {
    const v1::Bundle& bundle = BundleOf(request, rank);
    NodeIndex best = kNoNode;
    std::tuple<int, int, int> best_cost;
    for (NodeIndex index : view.order()) {
      const NodeView& node = view.node(index);
      if (!UsableNow(node) || Reserved(reserved, index) || !Eligible(node, request)) continue;
      if (only != kNoNode && index != only) continue;
      if (request.strategy() == v1::STRATEGY_STRICT_SPREAD && mine[index] > 0) continue;
      if (node.RoomFor(bundle, request.job(), false, 1) == 0) continue;
      const int gpus_left = std::popcount(node.has.gpus & ~node.gpus_used),
                cpus_left = node.has.cpu_slots - node.cpu_used;
      const int spread = request.strategy() == v1::STRATEGY_SPREAD ? mine[index] : mine[index] > 0 ? 0 : 1;
      const std::tuple<int, int, int> cost(spread, gpus_left, cpus_left);
      if (best == kNoNode || cost < best_cost) {
        best = index;
        best_cost = cost;
      }
    }
    if (best == kNoNode) return absl::ResourceExhaustedError("");
    placement[rank] = {best, PickGpus(view.node(best), bundle, request.job())};
    view.Take(placement[rank], bundle, request.job());
    ++mine[best];
  }
  return placement;
}

absl::StatusOr<Placement> PlaceUnequal(const ClusterView& view, const v1::PlacementRequest& request,
                                       const std::vector<bool>* reserved) {
  if (request.strategy() != v1::STRATEGY_STRICT_PACK) return PlaceUnequalIn(view, request, reserved, kNoNode);
  for (NodeIndex node : view.order()) {
    auto placement = PlaceUnequalIn(view, request, reserved, node);
    if (placement.ok()) return placement;
  }
  return absl::ResourceExhaustedError("");
}

}  // namespace

int NumRanks(const v1::PlacementRequest& request) {
  return request.bundles_size() == 1 ? std::max(request.repeat(), 1) : request.bundles_size();
}

const v1::Bundle& BundleOf(const v1::PlacementRequest& request, int rank) {
  return request.bundles(request.bundles_size() == 1 ? 0 : rank);
}

std::string NameOf(const v1::PlacementRequest& request) {
  return request.name().empty() ? "a placement" : request.name();
}

absl::Status CheckRequest(const v1::PlacementRequest& request) {
  constexpr int kMaxRanks = 1 << 16;
  const std::string name = NameOf(request);
  if (request.bundles().empty()) return UserError(absl::StrCat(name, ": needs at least one rank"));
  if (request.repeat() < 0 || (request.bundles_size() > 1 && request.repeat() > 1)) {
    return UserError(absl::StrCat(name, ": repeat ", request.repeat(), " goes with one bundle, and is not negative"));
  }
  if (NumRanks(request) > kMaxRanks) return UserError(absl::StrCat(name, ": at most ", kMaxRanks, " ranks"));
  for (const v1::Bundle& bundle : request.bundles()) {
    if (bundle.cpu_slots() < 0 || bundle.gpus() < 0) {
      return UserError(absl::StrCat(name, ": a rank needs no fewer than 0 CPU slots and GPUs"));
    }
  }
  if (request.segment() < 0) return UserError(absl::StrCat(name, ": segment is not negative"));
  if (request.segment() > 1 && !AllEqual(request)) {
    return UserError(absl::StrCat(name, ": segments need ranks that all ask for the same"));
  }
  if (const int per_node = request.ranks_per_node(); per_node != 0) {
    if (per_node < 0 || NumRanks(request) % per_node != 0 || request.segment() % per_node != 0) {
      return UserError(absl::StrCat(name, ": ranks_per_node ", per_node, " divides the number of ranks, ", NumRanks(request),
                                    request.segment() > 0 ? ", and the segment" : ""));
    }
    if (!AllEqual(request)) return UserError(absl::StrCat(name, ": ranks_per_node needs ranks that all ask for the same"));
    if (request.strategy() != v1::STRATEGY_UNSPECIFIED && request.strategy() != v1::STRATEGY_PACK) {
      return UserError(absl::StrCat(name, ": ranks_per_node goes with the strategy PACK alone"));
    }
  }
  if (!v1::Strategy_IsValid(request.strategy())) return UserError(absl::StrCat(name, ": unknown strategy"));
  return absl::OkStatus();
}

absl::StatusOr<Placement> Place(const ClusterView& view, const v1::PlacementRequest& request,
                                const std::vector<bool>* reserved) {
  MANTA_RETURN_IF_ERROR(CheckRequest(request));
  if (AllEqual(request)) return PlaceEqual(view, request, reserved);
  auto placement = PlaceUnequal(view, request, reserved);
  if (placement.ok()) return placement;
  ClusterView empty = view;
  empty.ClearUsage();
  for (NodeIndex node : view.order()) {
    if (UsableEver(view.node(node))) empty.SetUsable(node, Usable::kYes);
  }
  if (!PlaceUnequal(empty, request, nullptr).ok()) return absl::FailedPreconditionError(Missing(view, request));
  return absl::ResourceExhaustedError(absl::StrCat(NameOf(request), " waits for slots that are in use"));
}

}  // namespace manta::controller::scheduler
