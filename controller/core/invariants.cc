// What must always hold, looked at from outside the code that makes it so.
#include <bit>

#include "absl/strings/str_cat.h"
#include "controller/core/core_impl.h"

namespace manta::controller::core {

std::vector<std::string> Core::Impl::CheckInvariants() const {
  std::vector<std::string> broken;
  // What placements hold is what the view counts as taken; a GPU has one holder, or slots of one job.
  struct Used {
    int64_t cpus = 0;
    uint64_t whole = 0, shared = 0;
  };
  std::vector<Used> used(nodes_.size());
  for (const auto& [id, placement] : placements_) {
    if (placement.placed && placement.ranks.size() != static_cast<size_t>(scheduler::NumRanks(placement.request))) {
      broken.push_back(absl::StrCat("placement ", id, " is not whole"));
      continue;
    }
    if (!placement.placed && !placement.ranks.empty())
      broken.push_back(absl::StrCat("placement ", id, " is half made"));
    for (size_t i = 0; i < placement.ranks.size(); ++i) {
      if (!placement.holds[i]) continue;
      const auto& place = placement.ranks[i];
      const v1::Bundle& bundle = scheduler::BundleOf(placement.request, static_cast<int>(i));
      Used& node = used[place.node];
      node.cpus += bundle.cpu_slots();
      if (bundle.gpu_slot().empty()) {
        if (((node.whole | node.shared) & place.gpus) != 0) {
          broken.push_back(absl::StrCat("a GPU of ", nodes_[place.node]->name, " is held twice"));
        }
        node.whole |= place.gpus;
      } else {
        if ((node.whole & place.gpus) != 0) {
          broken.push_back(absl::StrCat("a GPU of ", nodes_[place.node]->name, " is held whole and shared"));
        }
        node.shared |= place.gpus;
      }
    }
    if (placement.user.has_value() && groups_.count(*placement.user) == 0) {
      broken.push_back(absl::StrCat("placement ", id, " is used by a group that is not there"));
    }
  }
  for (const auto& node : nodes_) {
    if (node == nullptr) continue;
    const scheduler::NodeView& view = view_.node(node->id);
    if (view.cpu_used != used[node->id].cpus || view.gpus_used != (used[node->id].whole | used[node->id].shared)) {
      broken.push_back(absl::StrCat("what is taken on ", node->name, " is counted wrong"));
    }
    if ((node->port != nullptr) != (node->session != 0) || (node->port != nullptr && !node->alive())) {
      broken.push_back(absl::StrCat("the stream of ", node->name, " is in two minds"));
    }
  }
  for (const auto& [key, group] : groups_) {
    const auto placement = placements_.find(group->placement);
    if (placement == placements_.end()) {
      broken.push_back(absl::StrCat("group ", GroupName(key), " has no placement"));
      continue;
    }
    for (size_t i = 0; i < group->ranks.size(); ++i) {
      const Actor& rank = group->ranks[i];
      const std::string id = ActorId(key, static_cast<int>(i));
      if (rank.may_run() && (i >= placement->second.holds.size() || !placement->second.holds[i])) {
        broken.push_back(absl::StrCat(id, " may run, and its slots are free"));
      }
      if (rank.may_run() && placement->second.ranks[i] != rank.place) {
        broken.push_back(absl::StrCat(id, " does not run where it is placed"));
      }
      if (group->state == GroupState::kReady && rank.phase != ActorPhase::kReady && !rank.replacing && !rank.done &&
          !(rank.phase == ActorPhase::kStopping && rank.failed)) {
        broken.push_back(absl::StrCat("group ", GroupName(key), " is ready, and ", id, " is not"));
      }
      if (rank.epoch != group->epoch && group->request.restart().kind() != v1::RestartPolicy::REPLACE_ONE) {
        broken.push_back(absl::StrCat(id, " is of another epoch than its group"));
      }
    }
    const bool waits = group->state != GroupState::kRemoving && group->state != GroupState::kFailed &&
                       group->state != GroupState::kReady;
    if (!waits && group->state == GroupState::kReady && !group->waiting.empty()) {
      broken.push_back(absl::StrCat("group ", GroupName(key), " is ready, and somebody waits for it"));
    }
  }
  return broken;
}

}  // namespace manta::controller::core
