// Recovery: what a head that was started again makes of its journal. Placements stand as they were; actors are unknown
// until their agents report them; nothing new is placed until every node in use is back, or has had its time to be.
#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "controller/core/core_impl.h"
#include "spdlog/spdlog.h"

namespace manta::controller::core {
namespace {

uint64_t Mask(const v1::PlacedRank& rank) {
  uint64_t mask = 0;
  for (int gpu : rank.gpus()) {
    if (gpu >= 0 && gpu <= scheduler::kMaxGpuIndex) mask |= uint64_t{1} << gpu;
  }
  return mask;
}

template <typename Row>
bool Parse(const JournalEntry& entry, Row* row) {
  if (row->ParseFromString(entry.value)) return true;
  spdlog::error("the journal's row {} of kind {} is not readable; it is left alone", entry.key,
                static_cast<int>(entry.kind));
  return false;
}

}  // namespace

void Core::Impl::Recover(std::vector<JournalEntry> rows) {
  // Groups last: they refer to placements and jobs.
  std::vector<v1::GroupRow> groups;
  for (const JournalEntry& entry : rows) {
    switch (entry.kind) {
      case Journal::Kind::kNodePolicy: {
        v1::NodePolicyRow row;
        if (!Parse(entry, &row) || !row.draining()) break;
        const NodeId known = view_.Find(entry.key);
        Node& node = known == scheduler::kNoNode ? AddNode(entry.key) : *nodes_[known];
        node.draining = true;
        if (row.deadline_unix_ms() > 0 && UnixMs() > 0) {
          node.drain_until = loop_.Now() + absl::Milliseconds(std::max<int64_t>(row.deadline_unix_ms() - UnixMs(), 0));
        }
        break;
      }
      case Journal::Kind::kJob: {
        v1::JobRow row;
        if (!Parse(entry, &row)) break;
        Job& job = job_table_[row.job()];
        job.id = row.job();
        job.request = row.request();
        job.state = row.state();
        job.status = FromProto(row.status());
        job.arrival = row.arrival();
        job.submitted_unix_ms = row.submitted_unix_ms();
        job.head_restarts = row.head_restarts();
        job.worker_restarts = row.worker_restarts();
        job.done.insert(row.done().begin(), row.done().end());
        arrivals_ = std::max(arrivals_, job.arrival);
        break;
      }
      case Journal::Kind::kPlacement: {
        v1::PlacementRow row;
        if (Parse(entry, &row)) RecoverPlacement(row);
        break;
      }
      case Journal::Kind::kGroup: {
        v1::GroupRow row;
        if (Parse(entry, &row)) groups.push_back(std::move(row));
        break;
      }
      default:
        break;
    }
  }
  for (const v1::GroupRow& row : groups) RecoverGroup(row);
  std::vector<std::string> stopped;
  for (auto& [id, job] : job_table_) {
    if (job.state == "RUNNING") {
      ++job.head_restarts;
      SaveJob(job);
      if (jobs_ == nullptr) continue;
      outbox_.Add(
          [this, start = JobStart{id, job.request.name(), job.request.config_yaml(), job.request.run_dir(),
                                  job.request.working_dir(), job.request.priority(), true}] { jobs_->Run(start); });
    } else if (job.state == "STOPPING") {
      stopped.push_back(id);
    }
  }
  for (const std::string& id : stopped)
    JobEnded(id, absl::CancelledError("stopped, while the controller was started again"));
  if (placements_.empty() && groups_.empty()) return;
  recovering_ = true;
  spdlog::info("recovering: {} groups and {} placements", groups_.size(), placements_.size());
  After(options_.recovery, [](Impl& impl) { impl.EndRecovery(); });
  Changed();
}

void Core::Impl::RecoverPlacement(const v1::PlacementRow& row) {
  const bool placed = row.ranks_size() > 0;  // none: its group waits for room again
  if (!scheduler::CheckRequest(row.request()).ok()) return;
  if (placed && row.ranks_size() != scheduler::NumRanks(row.request())) return;
  Placement& placement = placements_[row.id()];
  placement.id = row.id();
  placement.request = row.request();
  placement.arrival = row.arrival();
  arrivals_ = std::max(arrivals_, row.arrival());
  placement.patience = absl::Milliseconds(std::max<int64_t>(row.request().deadline_ms(), 0));
  placement.explicit_ = true;
  placement.placed = placed;
  if (!row.request().key().empty()) {
    placement_keys_[absl::StrCat(row.request().job(), "/", row.request().key())] = row.id();
  }
  for (int i = 0; i < row.ranks_size(); ++i) {
    const NodeId known = view_.Find(row.ranks(i).node());
    const NodeId node = known == scheduler::kNoNode ? AddNode(row.ranks(i).node()).id : known;
    placement.ranks.push_back({node, Mask(row.ranks(i))});
    placement.holds.push_back(true);
    view_.Take(placement.ranks.back(), scheduler::BundleOf(placement.request, i), placement.request.job());
  }
}

void Core::Impl::RecoverGroup(const v1::GroupRow& row) {
  const GroupKey key{row.request().placement().job(), row.request().role()};
  if (row.removing() && row.ranks().empty()) {
    journal_.Erase(Journal::Kind::kGroup, key.Name());
    return;
  }
  uint64_t placement_id = row.placement_id();
  if (placement_id == 0) {
    v1::PlacementRow place;
    place.set_id(placement_id = NextToken());
    place.set_arrival(++arrivals_);
    *place.mutable_request() = row.request().placement();
    for (const v1::ActorRow& rank : row.ranks()) *place.add_ranks() = rank.place();
    RecoverPlacement(place);
    if (placements_.count(placement_id) > 0) placements_.at(placement_id).explicit_ = false;
  }
  const auto placement = placements_.find(placement_id);
  if (placement == placements_.end() || static_cast<int>(placement->second.ranks.size()) != row.ranks_size()) {
    spdlog::error("group {}: the journal has no place for it; what is left of it will be ended", GroupName(key));
    if (placement != placements_.end() && row.placement_id() == 0) DropPlacement(placement_id);
    journal_.Erase(Journal::Kind::kGroup, key.Name());
    return;
  }
  placement->second.user = key;
  Group& group = *(groups_[key] = std::make_unique<Group>());
  group.key = key;
  group.serial = NextToken();
  group.request = row.request();
  group.epoch = row.epoch();
  group.placement = placement_id;
  group.own_placement = row.placement_id() == 0;
  group.restarts = row.restarts();
  group.was_ready = row.ready();
  group.ever_ready = row.ever_ready();
  group.journalled = group.adopted = true;
  group.history.assign(row.history().begin(), row.history().end());
  if (!group.request.name().empty()) names_[group.request.name()] = key;
  group.failure = FromProto(row.failure());
  group.state = row.removing()        ? GroupState::kRemoving
                : row.failed()        ? GroupState::kFailed
                : row.ranks().empty() ? GroupState::kQueued
                : row.over()          ? GroupState::kRestarting
                                      : GroupState::kStarting;
  bool ports_missing = false;
  for (int i = 0; i < row.ranks_size(); ++i) {
    const v1::ActorRow& saved = row.ranks(i);
    Actor& rank = group.ranks.emplace_back();
    rank.epoch = saved.epoch();
    rank.agent = saved.agent();
    rank.place = placement->second.ranks[i];
    rank.was_ready = saved.ready();
    rank.ports.assign(saved.ports().begin(), saved.ports().end());
    rank.last_beat = rank.last_progress = loop_.Now();
    const bool ends = row.removing() || row.over() || (saved.over() && !row.failed());
    rank.phase = ends                            ? ActorPhase::kStopping
                 : saved.ready() || row.failed() ? ActorPhase::kUnknown
                                                 : ActorPhase::kStarting;
    rank.failed = saved.over();
    rank.done = saved.done() && !ends;
    if (rank.done) rank.phase = ActorPhase::kGone;
    rank.replacing = saved.over() && !row.removing() && !row.over() && !row.failed();
    if (rank.phase == ActorPhase::kStarting) {
      rank.start_until = loop_.Now() + options_.recovery + absl::Milliseconds(group.request.start_deadline_ms());
    }
    ports_missing |= group.request.ports_per_rank() > 0 && rank.ports.empty();
  }
  if (ports_missing && group.state == GroupState::kStarting) {
    group.state = GroupState::kLeasing;  // asked for again once recovery is over
    for (Actor& rank : group.ranks) rank.phase = ActorPhase::kPlaced;
  }
  if (group.state == GroupState::kQueued) {
    placement->second.waits_for_nodes = true;
    placement->second.patience = std::max(placement->second.patience, absl::Minutes(1));
    Enqueue(placement->second);
  }
  Note(group, "the controller was started again");
}

void Core::Impl::CheckRecovered() {
  for (const auto& [id, placement] : placements_) {
    for (const auto& place : placement.ranks) {
      if (nodes_[place.node]->state == NodeState::kExpected) return;
    }
  }
  EndRecovery();
}

void Core::Impl::EndRecovery() {
  if (!recovering_) return;
  recovering_ = false;
  spdlog::info("recovery is over");
  for (size_t i = 0; i < nodes_.size(); ++i) {
    if (nodes_[i] == nullptr || nodes_[i]->state != NodeState::kExpected) continue;
    Node& node = *nodes_[i];
    LoseNode(node, "it has not come back since the controller was started again", LeaseEnd(node));
  }
  for (Group* group : Groups()) {
    if (group->state != GroupState::kLeasing) continue;
    bool leases = false;
    for (const auto& [id, wanted] : port_leases_) leases |= wanted.key == group->key;
    if (!leases) LeasePorts(*group);
  }
  Changed();
}

}  // namespace manta::controller::core
