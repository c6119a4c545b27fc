// Draining: nothing new is placed on the node; groups that know how to start again move elsewhere as soon as there is
// room; the others may finish, until the deadline.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "controller/core/core_impl.h"
#include "spdlog/spdlog.h"

namespace manta::controller::core {

bool Core::Impl::Idle(const Node& node) const {
  for (const auto& [key, group] : groups_) {
    for (const Actor& rank : group->ranks) {
      if (rank.place.node == node.id && rank.may_run() && rank.gone_at == absl::InfiniteFuture()) return false;
    }
  }
  return true;
}

void Core::Impl::Drain(const v1::DrainRequest& request, Answer<v1::Done> answer) {
  absl::Status status = CheckMayChange();
  if (status.ok() && request.nodes().empty()) status = UserError("names no node to drain");
  for (const std::string& name : request.nodes()) {
    if (status.ok() && view_.Find(name) == scheduler::kNoNode) {
      status = absl::NotFoundError(absl::StrCat("there is no node ", name));
    }
  }
  if (!status.ok()) return Reply<v1::Done>(std::move(answer), status);
  const bool bounded = request.deadline_ms() > 0;
  const absl::Time until = bounded ? loop_.Now() + absl::Milliseconds(request.deadline_ms()) : absl::InfiniteFuture();
  for (const std::string& name : request.nodes()) {
    Node& node = *nodes_[view_.Find(name)];
    node.draining = !request.undo();
    node.drain_until = request.undo() ? absl::InfiniteFuture() : until;
    if (request.undo()) {
      journal_.Erase(Journal::Kind::kNodePolicy, name);
    } else {
      v1::NodePolicyRow row;
      row.set_draining(true);
      if (bounded && UnixMs() > 0) row.set_deadline_unix_ms(UnixMs() + request.deadline_ms());
      journal_.Put(Journal::Kind::kNodePolicy, name, row.SerializeAsString());
    }
    spdlog::info("node {} is {}", name, request.undo() ? "open again" : "being drained");
    UpdateUsable(node);
    if (node.draining) MoveAway(node, /*now_or_never=*/false);
  }
  Changed();
  if (!request.wait() || request.undo()) return Reply<v1::Done>(std::move(answer), v1::Done());
  drain_waiters_.push_back({{request.nodes().begin(), request.nodes().end()},
                            bounded ? until + absl::Seconds(10) + options_.stop_slack : until,
                            std::move(answer)});
  CheckDrains(loop_.Now());
}

void Core::Impl::MoveAway(Node& node, bool now_or_never) {
  for (Group* group : Groups()) {
    if (group->state != GroupState::kReady) continue;
    const auto kind = group->request.restart().kind();
    const Placement& placement = placements_.at(group->placement);
    for (int i = 0; i < static_cast<int>(group->ranks.size()); ++i) {
      Actor& rank = group->ranks[i];
      if (rank.place.node != node.id || rank.phase != ActorPhase::kReady || rank.failed) continue;
      const absl::Status why = absl::UnavailableError(absl::StrCat("node ", node.name, " is drained"));
      if (kind == v1::RestartPolicy::RESTART_GROUP || kind == v1::RestartPolicy::REPLACE_ONE) {
        scheduler::ClusterView without = view_;
        v1::PlacementRequest request = placement.request;
        const bool whole = kind == v1::RestartPolicy::RESTART_GROUP;
        if (!whole) {
          request.clear_repeat();
          request.clear_bundles();
          *request.add_bundles() = scheduler::BundleOf(placement.request, i);
        }
        for (int r = whole ? 0 : i; r < (whole ? static_cast<int>(placement.ranks.size()) : i + 1); ++r) {
          if (placement.holds[r]) {
            without.Give(placement.ranks[r], scheduler::BundleOf(placement.request, r), placement.request.job());
          }
        }
        if (scheduler::Place(without, request).ok()) {
          if (!whole) {
            BeginReplace(*group, i, why, /*planned=*/true);
            continue;
          }
          BeginRestart(*group, why, /*planned=*/true);
          break;
        }
      }
      if (!now_or_never) continue;
      RankFailed(*group, i, why);
      if (rank.phase == ActorPhase::kReady) StopRank(*group, i, absl::Seconds(10));
    }
  }
}

void Core::Impl::CheckDrains(absl::Time now) {
  for (auto& node : nodes_) {
    if (node != nullptr && node->draining && node->alive() && !Idle(*node)) MoveAway(*node, node->drain_until <= now);
  }
  for (auto it = drain_waiters_.begin(); it != drain_waiters_.end();) {
    absl::StatusOr<v1::Done> result = v1::Done();
    bool done = true;
    for (const std::string& name : it->nodes) {
      const NodeId id = view_.Find(name);
      if (id == scheduler::kNoNode || !nodes_[id]->alive()) continue;
      if (!nodes_[id]->draining) {
        result = absl::CancelledError(absl::StrCat("node ", name, " was opened again"));
      } else if (!Idle(*nodes_[id])) {
        done = false;
      }
    }
    if (!done && now >= it->until) {
      done = true;
      result = absl::DeadlineExceededError("not every actor has left in time");
    }
    if (!done && result.ok()) {
      ++it;
      continue;
    }
    Reply<v1::Done>(std::move(it->answer), std::move(result));
    it = drain_waiters_.erase(it);
  }
}

}  // namespace manta::controller::core
