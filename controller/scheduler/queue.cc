#include "controller/scheduler/queue.h"

#include <optional>

#include "absl/strings/str_cat.h"

namespace manta::controller::scheduler {

void PlacementQueue::Add(Waiting waiting) {
  auto key = std::tuple_cat(Key(waiting), std::tuple(waiting.id));
  order_.emplace(std::move(key), std::move(waiting));
}

bool PlacementQueue::Remove(uint64_t id) {
  for (auto it = order_.begin(); it != order_.end(); ++it) {
    if (it->second.id != id) continue;
    order_.erase(it);
    return true;
  }
  return false;
}

PlacementQueue::Outcome PlacementQueue::Pass(ClusterView& view,
                                             const std::function<ClusterView(const Waiting&)>& holds_before) {
  Outcome outcome;
  std::vector<bool> reserved;
  std::string blocker;
  bool blocked = false, everything_reserved = false;
  for (auto it = order_.begin(); it != order_.end();) {
    const Waiting& waiting = it->second;
    absl::StatusOr<Placement> placement = absl::ResourceExhaustedError("");
    if (!everything_reserved) placement = Place(view, waiting.request, blocked ? &reserved : nullptr);
    if (placement.ok()) {
      for (size_t rank = 0; rank < placement->size(); ++rank) {
        view.Take((*placement)[rank], BundleOf(waiting.request, static_cast<int>(rank)), waiting.request.job());
      }
      outcome.placed.emplace_back(std::move(it->second), std::move(*placement));
      it = order_.erase(it);
      continue;
    }
    if (placement.status().code() != absl::StatusCode::kResourceExhausted) {
      outcome.impossible.emplace_back(waiting.id, placement.status());
    } else if (blocked) {
      outcome.waiting.emplace_back(
          waiting.id, absl::ResourceExhaustedError(absl::StrCat(NameOf(waiting.request), " waits behind ", blocker)));
    } else {
      outcome.waiting.emplace_back(waiting.id, placement.status());
      blocked = true;
      blocker = NameOf(waiting.request);
      if (std::next(it) != order_.end()) {
        const absl::StatusOr<Placement> kept = Place(holds_before(waiting), waiting.request);
        everything_reserved = !kept.ok();  // it waits for a node that is silent, or for an older one's to end
        if (kept.ok()) {
          for (const PlacedRank& rank : *kept) {
            if (rank.node >= static_cast<NodeIndex>(reserved.size())) reserved.resize(rank.node + 1, false);
            reserved[rank.node] = true;
          }
        }
      }
    }
    ++it;
  }
  return outcome;
}

}  // namespace manta::controller::scheduler
