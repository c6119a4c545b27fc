// What becomes of a group when one of its ranks ends, falls silent or hangs: by its policy the group fails, is started
// again as a whole in a new epoch, or has that rank alone replaced.
//
// A new epoch never begins while a process of the old one may run: each is reported gone by its agent, or its node is
// lost and the lease that kept it alive has ended (Actor::gone_at).
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "controller/cluster/death.h"
#include "controller/core/core_impl.h"
#include "spdlog/spdlog.h"

namespace manta::controller::core {
namespace {

constexpr absl::Duration kStopGrace = absl::Seconds(1);   // of ranks that end with a failed one
constexpr absl::Duration kMoveGrace = absl::Seconds(10);  // of ranks that move away from a drained node
constexpr absl::Duration kStackTime = absl::Seconds(5);   // for hanging ranks to write their stacks
constexpr absl::Duration kPatience = absl::Seconds(60);   // for room, or a node to come back, when starting again
constexpr size_t kKeptFailed = 1000;                      // failed groups that nobody removes
constexpr int kMaxRestarts = 3;
constexpr int64_t kBackoffMs = 500, kBackoffMaxMs = 60'000, kResetAfterMs = 600'000;

int64_t Or(int64_t value, int64_t otherwise) {
  return value > 0 ? value : otherwise;
}

int MaxRestarts(const v1::RestartPolicy& policy) {
  return policy.max_restarts() == 0 ? kMaxRestarts : policy.max_restarts() < 0 ? INT32_MAX : policy.max_restarts();
}

}  // namespace

void Core::Impl::RankFailed(Group& group, int i, const absl::Status& status) {
  Actor& rank = group.ranks[i];
  if (rank.failed) return;
  rank.failed = true;
  rank.died = status;
  const bool in_service =
      group.state == GroupState::kLeasing || group.state == GroupState::kStarting || group.state == GroupState::kReady;
  if (!in_service) return;  // a consequence, or asked for
  spdlog::error("group {}: {}", GroupName(group.key), std::string(status.message()));
  const v1::ErrorInfo info = GetErrorInfo(status);
  for (const std::string& line : info.last_lines()) spdlog::error("  | {}", line);
  Note(group, std::string(status.message()));
  if (group.failure.ok()) group.failure = status;
  const v1::RestartPolicy& policy = group.request.restart();
  const bool replace = policy.kind() == v1::RestartPolicy::REPLACE_ONE && group.ever_ready;
  if (!replace) {
    v1::WorkerOrder order;
    order.mutable_peer_lost()->set_epoch(rank.epoch);
    order.mutable_peer_lost()->set_rank(i);
    order.mutable_peer_lost()->set_reason(std::string(status.message()));
    for (int peer = 0; peer < static_cast<int>(group.ranks.size()); ++peer) {
      if (peer != i && group.ranks[peer].phase == ActorPhase::kReady) SendWorkerOrder(group, peer, order);
    }
  }
  const bool comes_back = group.ever_ready && (replace || policy.kind() == v1::RestartPolicy::RESTART_GROUP);
  if (!comes_back) return GiveUp(group, status);
  if (group.restarts >= MaxRestarts(policy)) {
    return GiveUp(group, Annotate(status, absl::StrCat("group ", GroupName(group.key), " was restarted ",
                                                       group.restarts, " times")));
  }
  if (replace) {
    BeginReplace(group, i, status, /*planned=*/false);
  } else {
    BeginRestart(group, status, /*planned=*/false);
  }
}

void Core::Impl::GiveUp(Group& group, const absl::Status& status) {
  group.failure = status;
  if (!group.ever_ready) {
    // Whoever asked for it is told when nothing of it is left, or when that takes too long.
    spdlog::error("group {} did not start: {}", GroupName(group.key), std::string(status.message()));
    BeginRemoval(group, kStopGrace, absl::OkStatus());
    AfterFor(group, kStopGrace + options_.stop_slack,
             [](Impl& impl, Group& late) { impl.AnswerWaiting(late, late.failure); });
    return;
  }
  spdlog::error("group {} has failed: {}", GroupName(group.key), std::string(status.message()));
  SetState(group, GroupState::kFailed);
  for (Actor& rank : group.ranks) rank.replacing = false;
  if (group.journalled) SaveGroup(group);
  AnswerWaiting(group, status);
  Emit(group, GroupEvent::kFailed, status);
  ForgetFailedGroups();
}

// A failed group stays, for people to ask why, until somebody removes it; the oldest of too many go by themselves.
void Core::Impl::ForgetFailedGroups() {
  std::vector<Group*> failed;
  for (Group* group : Groups()) {
    if (group->state == GroupState::kFailed && group->AllGone()) failed.push_back(group);
  }
  if (failed.size() <= kKeptFailed) return;
  const auto older = [](const Group* a, const Group* b) { return a->serial < b->serial; };
  std::sort(failed.begin(), failed.end(), older);
  for (size_t i = 0; i + kKeptFailed < failed.size(); ++i) {
    BeginRemoval(*failed[i], absl::ZeroDuration(), absl::OkStatus());
  }
}

void Core::Impl::BeginRestart(Group& group, const absl::Status& why, bool planned) {
  if (!planned) ++group.restarts;
  group.planned = planned;
  SetState(group, GroupState::kRestarting);
  // That this epoch is over must not be forgotten: its actors' exits are, once they are acknowledged.
  SaveGroup(group);
  Emit(group, GroupEvent::kRestarting, why);
  for (int i = 0; i < static_cast<int>(group.ranks.size()); ++i) {
    group.ranks[i].replacing = false;
    if (group.ranks[i].gone()) continue;
    StopRank(group, i, planned ? kMoveGrace : group.ranks[i].failed ? absl::ZeroDuration() : kStopGrace);
  }
  if (group.AllGone()) EnterBackoff(group);
}

absl::Duration Core::Impl::Backoff(const Group& group) {
  const v1::RestartPolicy& policy = group.request.restart();
  double ms = static_cast<double>(Or(policy.backoff_ms(), kBackoffMs));
  const double most =
      static_cast<double>(std::max(Or(policy.backoff_max_ms(), kBackoffMaxMs), Or(policy.backoff_ms(), kBackoffMs)));
  for (int i = 1; i < group.restarts && ms < most; ++i) ms *= 2;
  return absl::Milliseconds(std::min(ms, most) * (0.75 + 0.5 * random_.NextUniform()));
}

void Core::Impl::EnterBackoff(Group& group) {
  SetState(group, GroupState::kBackoff);
  const absl::Duration backoff = group.planned ? absl::ZeroDuration() : Backoff(group);
  group.backoff_until = loop_.Now() + backoff;
  AfterFor(group, backoff, [epoch = group.epoch](Impl& impl, Group& now) {
    if (now.state == GroupState::kBackoff && now.epoch == epoch) impl.Restart(now);
  });
}

void Core::Impl::Restart(Group& group) {
  Placement& placement = placements_.at(group.placement);
  const bool stands = std::all_of(placement.ranks.begin(), placement.ranks.end(), [&](const auto& place) {
    return view_.node(place.node).usable == scheduler::Usable::kYes;
  });
  if (stands) return NewEpoch(group);
  Release(placement);
  group.ranks.clear();
  placement.placed = false;
  placement.ranks.clear();
  placement.waits_for_nodes = true;
  placement.patience = std::max(placement.patience, kPatience);
  SetState(group, GroupState::kQueued);
  // Its slots may be another's from here on: the journal must not give them back to it.
  SaveGroup(group);
  if (placement.explicit_) SavePlacement(placement);
  Enqueue(placement);
}

void Core::Impl::BeginReplace(Group& group, int i, const absl::Status& why, bool planned) {
  Actor& rank = group.ranks[i];
  if (!planned) ++group.restarts;
  group.planned = planned;
  rank.replacing = true;
  rank.backoff_until = absl::InfiniteFuture();
  rank.failed = true;
  SaveGroup(group);
  Emit(group, GroupEvent::kRestarting, why);
  // Where its process is gone already, whoever reported that calls RankGone next.
  if (rank.may_run()) StopRank(group, i, planned ? kMoveGrace : absl::ZeroDuration());
}

void Core::Impl::StartReplacement(Group& group, int i) {
  if (group.state != GroupState::kReady && group.state != GroupState::kStarting) return;
  Placement& placement = placements_.at(group.placement);
  if (view_.node(placement.ranks[i].node).usable == scheduler::Usable::kYes) {
    return RankPlaced(group, i, placement.ranks[i]);
  }
  const v1::PlacementRequest& whole = placement.request;
  if (whole.segment() > 1 || whole.ranks_per_node() > 0 || whole.strategy() == v1::STRATEGY_STRICT_PACK ||
      group.request.ports_per_rank() > 0) {
    return BeginRestart(group, group.ranks[i].died, /*planned=*/true);  // its place follows from the others'
  }
  // It keeps its old slot until it has a new one: the two change in one row.
  scheduler::Waiting waiting{.id = NextToken(), .job_arrival = JobArrival(group.key.job), .arrival = placement.arrival};
  waiting.request = whole;
  waiting.request.set_name(ActorId(group.key, i));
  waiting.request.set_priority(Priority(whole));
  waiting.request.clear_repeat();
  waiting.request.clear_bundles();
  *waiting.request.add_bundles() = scheduler::BundleOf(whole, i);
  if (whole.strategy() == v1::STRATEGY_STRICT_SPREAD) {
    for (int other = 0; other < static_cast<int>(placement.ranks.size()); ++other) {
      if (other != i) waiting.request.add_avoid(NodeName(placement.ranks[other].node));
    }
  }
  const uint64_t id = waiting.id;
  rank_items_[id] = {group.key, group.serial, i};
  queue_.Add(std::move(waiting));
  AfterFor(group, std::max(placement.patience, kPatience), [id, i](Impl& impl, Group& late) {
    if (impl.rank_items_.erase(id) == 0) return;
    impl.queue_.Remove(id);
    impl.GiveUp(late, absl::DeadlineExceededError(absl::StrCat("no room was found for ", ActorId(late.key, i),
                                                               ", which was lost: ", late.waits_for)));
  });
  Changed();
}

void Core::Impl::RankPlaced(Group& group, int i, scheduler::PlacedRank place) {
  Placement& placement = placements_.at(group.placement);
  placement.ranks[i] = place;
  placement.holds[i] = true;
  const std::vector<int32_t> ports = std::move(group.ranks[i].ports);
  group.ranks[i] = Actor();
  group.ranks[i].epoch = NextToken();
  group.ranks[i].place = place;
  group.ranks[i].agent = nodes_[place.node]->hello.incarnation();
  group.ranks[i].ports = ports;
  group.ranks[i].replacing = true;
  SaveGroup(group);
  if (placement.explicit_) SavePlacement(placement);
  StartRank(group, i);
}

void Core::Impl::SendWorkerOrder(const Group& group, int i, const v1::WorkerOrder& order) {
  v1::NodeCommand command;
  command.mutable_worker()->mutable_actor()->set_actor_id(ActorId(group.key, i));
  command.mutable_worker()->mutable_actor()->set_epoch(group.ranks[i].epoch);
  *command.mutable_worker()->mutable_order() = order;
  Command(group.ranks[i].place.node, std::move(command));
}

void Core::Impl::CheckActors(absl::Time now) {
  for (Group* group : Groups()) {
    const v1::GroupRequest& request = group->request;
    for (int i = 0; i < static_cast<int>(group->ranks.size()); ++i) {
      Actor& rank = group->ranks[i];
      if (!rank.may_run()) continue;
      if (rank.gone_at <= now) {
        RankGone(*group, i);
      } else if (rank.gone_at != absl::InfiniteFuture()) {
        continue;  // nobody there to be asked
      } else if (rank.phase == ActorPhase::kStarting && rank.start_until <= now) {
        const std::string id = ActorId(group->key, i);
        RankFailed(*group, i,
                   absl::DeadlineExceededError(
                       absl::StrCat(id, " on ", NodeName(rank.place.node), " has not announced itself within ",
                                    absl::FormatDuration(absl::Milliseconds(request.start_deadline_ms())),
                                    "; see logs/", group->key.role, "-", i, ".log")));
        if (rank.phase == ActorPhase::kStarting) StopRank(*group, i, absl::ZeroDuration());
      } else if (rank.phase == ActorPhase::kStopping && rank.stop_until <= now) {
        StopRank(*group, i, absl::ZeroDuration());
      } else if (rank.phase == ActorPhase::kReady && rank.beats && now - rank.last_beat > options_.actor_timeout &&
                 nodes_[rank.place.node]->state == NodeState::kJoined) {
        RankFailed(*group, i, ActorSilent(IdentityOf(*group, i), now - rank.last_beat));
        if (rank.phase == ActorPhase::kReady) StopRank(*group, i, absl::ZeroDuration());
      }
      if (i >= static_cast<int>(group->ranks.size())) break;  // it has gone on to wait for room
    }
    CheckProgress(*group, now);
    if (group->state == GroupState::kReady && group->restarts > 0 &&
        now - group->ready_since > absl::Milliseconds(Or(request.restart().reset_after_ms(), kResetAfterMs))) {
      group->restarts = 0;
    }
  }
}

void Core::Impl::CheckProgress(Group& group, absl::Time now) {
  const absl::Duration timeout = absl::Milliseconds(group.request.progress_timeout_ms());
  if (timeout == absl::ZeroDuration() || group.state != GroupState::kReady) return;
  int slowest = -1;
  absl::Time newest = absl::InfinitePast();
  bool running = false;
  const bool alone = group.request.restart().kind() == v1::RestartPolicy::REPLACE_ONE;
  for (int i = 0; i < static_cast<int>(group.ranks.size()); ++i) {
    const Actor& rank = group.ranks[i];
    if (rank.phase != ActorPhase::kReady) continue;
    const bool hangs = rank.running > 0 && now - rank.last_progress > timeout;
    running |= rank.running > 0;
    newest = std::max(newest, rank.last_progress);
    if (alone && !hangs) continue;
    if (slowest < 0 || rank.step < group.ranks[slowest].step) slowest = i;
  }
  if (slowest < 0 || !running || (!alone && now - newest <= timeout)) {
    group.stacks_until = absl::InfiniteFuture();
    return;
  }
  if (group.stacks_until == absl::InfiniteFuture()) {
    const std::string reason = absl::StrCat("no progress for ", absl::FormatDuration(timeout));
    spdlog::error("group {}: {}; its ranks write their stacks into their logs", GroupName(group.key), reason);
    Note(group, absl::StrCat(reason, "; asked for stacks"));
    v1::WorkerOrder order;
    order.mutable_stacks()->set_reason(reason);
    for (int i = 0; i < static_cast<int>(group.ranks.size()); ++i) {
      if (group.ranks[i].may_run()) SendWorkerOrder(group, i, order);
    }
    group.stacks_until = now + kStackTime;
  } else if (now >= group.stacks_until) {
    v1::ErrorInfo info;
    info.set_origin(v1::ORIGIN_TIMEOUT);
    info.set_outcome(v1::CALL_OUTCOME_UNKNOWN);
    info.set_actor(ActorId(group.key, slowest));
    info.set_rank(slowest);
    info.set_node(NodeName(group.ranks[slowest].place.node));
    info.set_exit_code(-1);
    const int64_t step = group.ranks[slowest].step;
    const absl::Status status = WithErrorInfo(
        absl::DeadlineExceededError(absl::StrCat(
            "group ", GroupName(group.key), ": no progress for ", absl::FormatDuration(timeout),
            step >= 0 ? absl::StrCat(" (step ", step, ")") : "", "; the stacks of its ranks are in their logs")),
        info);
    group.stacks_until = absl::InfiniteFuture();
    RankFailed(group, slowest, status);
    if (group.ranks[slowest].phase == ActorPhase::kReady) StopRank(group, slowest, absl::ZeroDuration());
  }
}

}  // namespace manta::controller::core
