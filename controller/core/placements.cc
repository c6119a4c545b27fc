// Placements: room that is asked for, waited for, held, and given back.
#include <algorithm>
#include <bit>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "controller/core/core_impl.h"
#include "spdlog/spdlog.h"

namespace manta::controller::core {
namespace {

constexpr size_t kMaxWaiting = 10'000;

}  // namespace

int Core::Impl::Priority(const v1::PlacementRequest& request) const {
  const auto job = job_table_.find(request.job());
  return job == job_table_.end() ? request.priority() : std::max(request.priority(), job->second.request.priority());
}

uint64_t Core::Impl::JobArrival(const std::string& job) const {
  const auto found = job_table_.find(job);
  return found == job_table_.end() ? 0 : found->second.arrival;
}

Placement& Core::Impl::AddPlacement(v1::PlacementRequest request) {
  const uint64_t id = NextToken();
  Placement& placement = placements_[id];
  placement.id = id;
  placement.arrival = ++arrivals_;
  placement.patience = absl::Milliseconds(std::max<int64_t>(request.deadline_ms(), 0));
  placement.waits_for_nodes = request.wait_for_nodes();
  placement.request = std::move(request);
  return placement;
}

void Core::Impl::CreatePlacement(v1::PlacementRequest request, Answer<v1::PlacementReply> answer) {
  if (request.job().empty()) request.set_job(kOnlyJob);
  absl::Status status = CheckMayChange();
  if (status.ok()) status = scheduler::CheckRequest(request);
  if (!status.ok()) return Reply<v1::PlacementReply>(std::move(answer), status);
  std::string key;
  if (!request.key().empty()) {
    key = absl::StrCat(request.job(), "/", request.key());
    const auto known = placement_keys_.find(key);
    if (known != placement_keys_.end()) {
      Placement& there = placements_.at(known->second);
      if (!there.placed) {
        there.answers.push_back(std::move(answer));
        return;
      }
      return Reply<v1::PlacementReply>(std::move(answer), ReplyOf(there));
    }
  }
  if (queue_.size() >= kMaxWaiting) {
    return Reply<v1::PlacementReply>(
        std::move(answer), absl::ResourceExhaustedError(absl::StrCat(kMaxWaiting, " placements are waiting already")));
  }
  Placement& placement = AddPlacement(std::move(request));
  placement.explicit_ = true;
  placement.answers.push_back(std::move(answer));
  if (!key.empty()) placement_keys_[key] = placement.id;
  Enqueue(placement);
}

void Core::Impl::Enqueue(Placement& placement) {
  placement.deadline = loop_.Now() + placement.patience;
  scheduler::Waiting waiting{.id = placement.id,
                             .request = placement.request,
                             .job_arrival = JobArrival(placement.request.job()),
                             .arrival = placement.arrival};
  waiting.request.set_priority(Priority(placement.request));
  queue_.Add(std::move(waiting));
  if (placement.patience > absl::ZeroDuration()) {
    After(placement.patience, [id = placement.id](Impl& impl) { impl.PlacementDue(id); });
  }
  Changed();
}

scheduler::ClusterView Core::Impl::ViewBefore(const scheduler::Waiting& waiting) const {
  scheduler::ClusterView kept = view_;
  for (const auto& [id, placement] : placements_) {
    const std::tuple key(-Priority(placement.request), JobArrival(placement.request.job()), placement.arrival);
    if (key < scheduler::PlacementQueue::Key(waiting)) continue;
    for (size_t i = 0; i < placement.ranks.size(); ++i) {
      if (!placement.holds[i]) continue;
      kept.Give(placement.ranks[i], scheduler::BundleOf(placement.request, static_cast<int>(i)),
                placement.request.job());
    }
  }
  return kept;
}

void Core::Impl::SchedulePass() {
  if (queue_.empty()) return;
  auto outcome = queue_.Pass(view_, [this](const scheduler::Waiting& waiting) { return ViewBefore(waiting); });
  for (auto& [waiting, places] : outcome.placed) {
    const auto item = rank_items_.find(waiting.id);
    if (item == rank_items_.end()) {
      Placed(placements_.at(waiting.id), std::move(places));
      continue;
    }
    const RankItem rank = item->second;
    rank_items_.erase(item);
    if (Group* group = Find(rank.key); group != nullptr && group->serial == rank.serial &&
                                       (group->state == GroupState::kReady || group->state == GroupState::kStarting)) {
      ReleaseRank(placements_.at(group->placement), rank.rank);  // the old one's
      RankPlaced(*group, rank.rank, places[0]);
    } else {
      view_.Give(places[0], waiting.request.bundles(0), waiting.request.job());
    }
  }
  const auto wait = [this](uint64_t id, const absl::Status& status) {
    if (const auto item = rank_items_.find(id); item != rank_items_.end()) {
      if (Group* group = Find(item->second.key); group != nullptr) group->waits_for = std::string(status.message());
      return;
    }
    Placement& placement = placements_.at(id);
    placement.waits_for = WithExpected(status);
    if (placement.user.has_value()) {
      if (Group* group = Find(*placement.user); group != nullptr) group->waits_for = placement.waits_for;
    }
    const bool impossible = status.code() == absl::StatusCode::kFailedPrecondition;
    if (status.code() == absl::StatusCode::kInvalidArgument || (impossible && FinallyImpossible(placement))) {
      v1::ErrorInfo info = GetErrorInfo(status);
      info.set_origin(v1::ORIGIN_USER);
      PlacementRefused(placement, WithErrorInfo(status, info));
    } else if (placement.patience == absl::ZeroDuration()) {
      PlacementRefused(placement, absl::Status(status.code(), placement.waits_for));
    }
  };
  for (const auto& [id, status] : outcome.impossible) wait(id, status);
  for (const auto& [id, status] : outcome.waiting) wait(id, status);
}

bool Core::Impl::FinallyImpossible(const Placement& placement) const {
  const auto known = std::count_if(nodes_.begin(), nodes_.end(), [](const auto& node) {
    return node != nullptr && node->state != NodeState::kExpected;
  });
  return known >= options_.expected_nodes && !placement.waits_for_nodes;
}

std::string Core::Impl::WithExpected(const absl::Status& status) const {
  const auto known = std::count_if(nodes_.begin(), nodes_.end(), [](const auto& node) {
    return node != nullptr && node->state != NodeState::kExpected;
  });
  if (known >= options_.expected_nodes) return std::string(status.message());
  return absl::StrCat(status.message(), "; ", known, " of ", options_.expected_nodes, " expected nodes have joined");
}

void Core::Impl::PlacementDue(uint64_t id) {
  const auto found = placements_.find(id);
  if (found == placements_.end() || found->second.placed || found->second.deadline > loop_.Now()) return;
  const Placement& placement = found->second;
  const std::string why = placement.waits_for.empty() ? absl::StrCat(scheduler::NameOf(placement.request),
                                                                     " waits for the restarted controller")
                                                      : placement.waits_for;
  PlacementRefused(found->second, absl::DeadlineExceededError(
                                      absl::StrCat(why, " (waited ", absl::FormatDuration(placement.patience), ")")));
}

void Core::Impl::Placed(Placement& placement, scheduler::Placement places) {
  placement.placed = true;
  placement.waits_for.clear();
  placement.waits_for_nodes = false;
  placement.ranks = std::move(places);
  placement.holds.assign(placement.ranks.size(), true);
  ++version_;
  if (placement.explicit_) {
    SavePlacement(placement);
    for (auto& answer : std::exchange(placement.answers, {})) {
      Reply<v1::PlacementReply>(std::move(answer), ReplyOf(placement));
    }
  }
  if (placement.user.has_value()) GroupPlaced(*Find(*placement.user));
}

void Core::Impl::PlacementRefused(Placement& placement, const absl::Status& status) {
  queue_.Remove(placement.id);
  if (placement.user.has_value()) {
    Group& group = *Find(*placement.user);
    group.waits_for.clear();
    GiveUp(group, status);  // may drop the placement
    return;
  }
  for (auto& answer : std::exchange(placement.answers, {})) Reply<v1::PlacementReply>(std::move(answer), status);
  DropPlacement(placement.id);
}

void Core::Impl::RemovePlacement(uint64_t id, Answer<v1::Done> answer) {
  const absl::Status health = journal_.health();
  const auto found = placements_.find(id);
  if (found == placements_.end()) return Reply<v1::Done>(std::move(answer), v1::Done());
  if (!health.ok()) return Reply<v1::Done>(std::move(answer), health);
  Placement& placement = found->second;
  if (placement.user.has_value()) {
    return Reply<v1::Done>(std::move(answer), absl::FailedPreconditionError(absl::StrCat(
                                                  "placement ", id, " is used by group ", GroupName(*placement.user))));
  }
  for (auto& waiting : std::exchange(placement.answers, {})) {
    Reply<v1::PlacementReply>(std::move(waiting), absl::CancelledError("the placement was removed"));
  }
  if (placement.placed) journal_.Erase(Journal::Kind::kPlacement, absl::StrCat(id));
  DropPlacement(id);
  Reply<v1::Done>(std::move(answer), v1::Done());
}

void Core::Impl::ReleaseRank(Placement& placement, int i) {
  if (!placement.holds[i]) return;
  placement.holds[i] = false;
  view_.Give(placement.ranks[i], scheduler::BundleOf(placement.request, i), placement.request.job());
  Changed();
}

void Core::Impl::Release(Placement& placement) {
  for (int i = 0; i < static_cast<int>(placement.ranks.size()); ++i) ReleaseRank(placement, i);
}

void Core::Impl::DropPlacement(uint64_t id) {
  const auto found = placements_.find(id);
  if (found == placements_.end()) return;
  queue_.Remove(id);
  Release(found->second);
  if (!found->second.request.key().empty()) {
    const auto key = placement_keys_.find(absl::StrCat(found->second.request.job(), "/", found->second.request.key()));
    if (key != placement_keys_.end() && key->second == id) placement_keys_.erase(key);
  }
  placements_.erase(found);
}

v1::PlacementReply Core::Impl::ReplyOf(const Placement& placement) const {
  v1::PlacementReply reply;
  reply.set_id(placement.id);
  for (const scheduler::PlacedRank& place : placement.ranks) {
    v1::PlacedRank& rank = *reply.add_ranks();
    rank.set_node(NodeName(place.node));
    for (uint64_t left = place.gpus; left != 0; left &= left - 1) rank.add_gpus(std::countr_zero(left));
  }
  return reply;
}

void Core::Impl::SavePlacement(const Placement& placement) {
  v1::PlacementRow row;
  row.set_id(placement.id);
  row.set_arrival(placement.arrival);
  *row.mutable_request() = placement.request;
  *row.mutable_ranks() = ReplyOf(placement).ranks();
  journal_.Put(Journal::Kind::kPlacement, absl::StrCat(placement.id), row.SerializeAsString());
}

}  // namespace manta::controller::core
