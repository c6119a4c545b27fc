#include "controller/cluster/cluster.h"

#include <cctype>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "controller/cluster/cluster_impl.h"
#include "spdlog/spdlog.h"

namespace manta::controller {
namespace {

constexpr absl::Duration kEndSlack = absl::Seconds(3);  // beyond a grace: for SIGKILL, and the agent to say so

}  // namespace

absl::Status Cluster::Impl::CheckSpec(const GroupSpec& spec) {
  const bool valid_role = !spec.role.empty() && std::all_of(spec.role.begin(), spec.role.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '_';
  });
  if (!valid_role) return UserError(absl::StrCat("'", spec.role, "' is no name for a group"));
  if (spec.num_ranks < 1 || spec.cpu_slots_per_rank < 0 || spec.gpus_per_rank < 0) {
    return UserError(absl::StrCat("group ", spec.role, ": needs at least one rank, and no fewer than 0 slots"));
  }
  return absl::OkStatus();
}

Task<bool> Cluster::Impl::AwaitChange(absl::Time until) {
  if (loop_.Now() >= until) co_return false;
  OneShot<bool> change(loop_);
  change_waiters_.push_back(change);
  const auto timer = loop_.RunAfter(until - loop_.Now(), [change]() mutable { change.Set(false); });
  const bool changed = co_await change.Wait();
  loop_.Cancel(timer);
  co_return changed;
}

Task<absl::Status> Cluster::Impl::WaitForNodes(int count, absl::Duration deadline) {
  const absl::Time until = loop_.Now() + deadline;
  while (static_cast<int>(nodes_.size()) < count) {
    if (stopping_) co_return absl::CancelledError("the cluster is stopping");
    if (!co_await AwaitChange(until)) {
      co_return absl::DeadlineExceededError(
          absl::StrCat(nodes_.size(), " of ", count, " nodes have joined within ", absl::FormatDuration(deadline)));
    }
  }
  co_return absl::OkStatus();
}

absl::StatusOr<std::vector<RankPlacement>> Cluster::Impl::TryPlace(const GroupSpec& spec) const {
  std::vector<NodeCapacity> capacities;
  for (const auto& [name, node] : nodes_) capacities.push_back(node.Capacity());
  return Place(std::move(capacities), {spec.role, spec.num_ranks, spec.cpu_slots_per_rank, spec.gpus_per_rank});
}

Task<absl::StatusOr<std::vector<RankPlacement>>> Cluster::Impl::AwaitPlacement(GroupSpec spec) {
  const absl::Time until = loop_.Now() + spec.placement_deadline;
  while (true) {
    if (stopping_) co_return absl::CancelledError("the cluster is stopping");
    auto placed = TryPlace(spec);
    if (placed.ok()) co_return placed;
    std::string absent;
    for (const auto& [name, reason] : lost_nodes_) absl::StrAppend(&absent, "; ", name, " absent");
    const int known = static_cast<int>(nodes_.size() + lost_nodes_.size());
    if (known < options_.expected_nodes) {
      absl::StrAppend(&absent, "; ", known, " of ", options_.expected_nodes, " expected nodes have joined");
    } else if (placed.status().code() == absl::StatusCode::kFailedPrecondition) {
      v1::ErrorInfo info = GetErrorInfo(placed.status());
      info.set_origin(v1::ORIGIN_USER);
      co_return WithErrorInfo(absl::FailedPreconditionError(absl::StrCat(placed.status().message(), absent)), info);
    }
    if (!co_await AwaitChange(until)) {
      co_return absl::DeadlineExceededError(absl::StrCat(placed.status().message(), absent, " (waited ",
                                                         absl::FormatDuration(spec.placement_deadline), ")"));
    }
  }
}

void Cluster::Impl::SendStart(const GroupRecord& record, size_t index, const GroupSpec& spec) {
  const ActorRecord& actor = record.actors[index];
  v1::NodeCommand command;
  v1::StartActor* start = command.mutable_start();
  start->set_actor_id(actor.identity.actor_id);
  start->set_epoch(actor.epoch);
  start->set_executable(spec.executable);
  for (const std::string& arg :
       {std::string("--actor-id"), actor.identity.actor_id, std::string("--epoch"), absl::StrCat(actor.epoch),
        std::string("--controller"), options_.controller_address, std::string("--token-file"), options_.token_file}) {
    start->add_args(arg);
  }
  for (const std::string& arg : spec.args) start->add_args(arg);
  start->mutable_env()->insert(spec.env.begin(), spec.env.end());
  start->set_log_path(absl::StrCat(options_.run_dir, "/logs/", actor.identity.actor_id, ".log"));
  for (int gpu : actor.gpus) start->add_gpu_indices(gpu);
  const auto& node_gpus = nodes_.at(actor.identity.node).hello.gpus();
  if (spec.shares_gpu && actor.gpus.empty() && !node_gpus.empty()) {
    start->add_gpu_indices(node_gpus[actor.identity.rank % node_gpus.size()].index());
  }
  start->set_cpu_slots(actor.cpu_slots);
  nodes_.at(actor.identity.node).link->Send(command);
}

Task<absl::Status> Cluster::Impl::AwaitStart(std::shared_ptr<GroupRecord> record, GroupSpec spec) {
  auto started = record->started;
  const auto timer = loop_.RunAfter(spec.start_deadline, [this, record, spec]() mutable {
    for (ActorRecord& actor : record->actors) {
      if (actor.state == v1::ACTOR_STATE_READY) continue;
      record->started.Set(absl::DeadlineExceededError(
          absl::StrCat(actor.identity.actor_id, " on ", actor.identity.node, " has not announced itself within ",
                       absl::FormatDuration(spec.start_deadline), "; see logs/", actor.identity.actor_id, ".log")));
      return;
    }
  });
  absl::Status status = co_await started.Wait();
  loop_.Cancel(timer);
  co_return status;
}

Task<absl::StatusOr<std::shared_ptr<Group>>> Cluster::Impl::StartGroup(GroupSpec spec) {
  MANTA_CO_RETURN_IF_ERROR(CheckSpec(spec));
  if (stopping_) co_return absl::CancelledError("the cluster is stopping");
  if (groups_.count(spec.role) > 0) {
    co_return absl::AlreadyExistsError(absl::StrCat("there is a group ", spec.role, " already"));
  }
  const uint64_t epoch = ++epochs_[spec.role];
  auto record = std::make_shared<GroupRecord>(loop_, std::make_shared<Group>(spec.role, epoch));
  groups_[spec.role] = record;
  auto placed = co_await AwaitPlacement(spec);
  if (!placed.ok()) {
    groups_.erase(spec.role);
    co_return placed.status();
  }
  for (int rank = 0; rank < spec.num_ranks; ++rank) {
    ActorRecord& actor = record->actors.emplace_back();
    actor.identity = {absl::StrCat(spec.role, "-", rank), rank, (*placed)[rank].node, 0};
    actor.epoch = epoch;
    actor.cpu_slots = spec.cpu_slots_per_rank;
    actor.gpus = (*placed)[rank].gpus;
    actor.state = v1::ACTOR_STATE_STARTING;
    actor.last_beat = loop_.Now();
    NodeRecord& node = nodes_.at(actor.identity.node);
    node.cpu_used += actor.cpu_slots;
    node.gpus_used.insert(actor.gpus.begin(), actor.gpus.end());
  }
  for (size_t i = 0; i < record->actors.size(); ++i) SendStart(*record, i, spec);

  absl::Status status = co_await AwaitStart(record, spec);
  if (status.ok()) status = record->failure;  // of the moment since the last one announced itself
  if (!status.ok()) {
    spdlog::error("group {} did not start: {}", spec.role, std::string(status.message()));
    co_await EndGroup(record, absl::Seconds(1));
    co_return status;
  }
  record->ready = true;
  for (const ActorRecord& actor : record->actors) {
    record->group->members_.push_back({actor.identity.actor_id, actor.identity.rank, actor.identity.node, actor.host_id,
                                       actor.address, actor.identity.pid, actor.gpus, actor.connection->channel()});
  }
  spdlog::info("group {} is ready: {} ranks, epoch {}", spec.role, spec.num_ranks, epoch);
  co_return record->group;
}

Task<void> Cluster::Impl::EndGroup(std::shared_ptr<GroupRecord> record, absl::Duration grace) {
  record->stopping = true;
  record->started.Set(absl::CancelledError(absl::StrCat("group ", record->group->role(), " is being stopped")));
  record->group->ended_.Cancel(absl::CancelledError(absl::StrCat("group ", record->group->role(), " was stopped")));
  for (const ActorRecord& actor : record->actors) {
    if (actor.MayRun()) StopActor(actor, grace);
  }
  if (record->AllEnded()) record->gone.Set(true);
  auto gone = record->gone;
  const auto timer = loop_.RunAfter(grace + kEndSlack, [gone]() mutable { gone.Set(false); });
  const bool ended = co_await gone.Wait();
  loop_.Cancel(timer);
  if (!ended) spdlog::error("group {}: not every process was reported gone in time", record->group->role());
  const auto found = groups_.find(record->group->role());
  if (found != groups_.end() && found->second == record) groups_.erase(found);
  Changed();
}

Task<absl::Status> Cluster::Impl::StopGroup(std::shared_ptr<Group> group, absl::Duration grace) {
  const auto found = groups_.find(group->role());
  if (found == groups_.end() || found->second->group != group) co_return absl::OkStatus();
  const auto record = found->second;
  co_await EndGroup(record, grace);
  if (!record->AllEnded()) {
    co_return absl::DeadlineExceededError(absl::StrCat("group ", group->role(), ": a process may still run"));
  }
  co_return absl::OkStatus();
}

Task<absl::Status> Cluster::Impl::StopAll(absl::Duration grace) {
  stopping_ = true;
  Changed();
  std::vector<Task<void>> ends;
  std::vector<std::shared_ptr<GroupRecord>> records;
  for (const auto& [role, record] : groups_) {
    records.push_back(record);
    ends.push_back(EndGroup(record, grace));
  }
  co_await WhenAll(std::move(ends));
  absl::Status status;
  for (const auto& record : records) {
    if (!record->AllEnded()) status = absl::DeadlineExceededError("not every process was reported gone in time");
  }
  v1::NodeCommand command;
  command.mutable_shutdown()->set_grace_ms(absl::ToInt64Milliseconds(grace));
  for (const auto& [name, node] : nodes_) node.link->Send(command);
  const absl::Time until = loop_.Now() + grace + kEndSlack;
  while (!nodes_.empty()) {
    if (!co_await AwaitChange(until)) break;
  }
  co_return status;
}

Task<absl::Status> Cluster::Impl::Explain(absl::Status status) {
  const bool maybe_dead =
      status.code() == absl::StatusCode::kUnavailable || status.code() == absl::StatusCode::kCancelled ||
      status.code() == absl::StatusCode::kAborted || status.code() == absl::StatusCode::kDeadlineExceeded;
  if (status.ok()) co_return status;
  if (first_failure_.ok() && maybe_dead && GetErrorInfo(status).actor().empty()) {
    const absl::Time until = loop_.Now() + options_.exit_report_wait + absl::Milliseconds(500);
    while (first_failure_.ok()) {
      if (!co_await AwaitChange(until)) break;
    }
  }
  co_return first_failure_.ok() || !maybe_dead ? status : first_failure_;
}

// ---- The public face
// --------------------------------------------------------------------------------------------------

Cluster::Cluster(EventLoop& loop, ActorPort& actors, Options options)
    : impl_(std::make_unique<Impl>(loop, actors, std::move(options))) {}
Cluster::~Cluster() = default;
void Cluster::set_controller_address(const std::string& address) {
  impl_->options_.controller_address = address;
}

Task<absl::StatusOr<std::shared_ptr<Group>>> Cluster::StartGroup(GroupSpec spec) {
  return impl_->StartGroup(std::move(spec));
}
Task<absl::Status> Cluster::StopGroup(std::shared_ptr<Group> group, absl::Duration grace) {
  return impl_->StopGroup(std::move(group), grace);
}
Task<absl::Status> Cluster::StopAll(absl::Duration grace) {
  return impl_->StopAll(grace);
}
Task<absl::Status> Cluster::WaitForNodes(int count, absl::Duration deadline) {
  return impl_->WaitForNodes(count, deadline);
}
Task<absl::Status> Cluster::Explain(absl::Status status) {
  return impl_->Explain(std::move(status));
}
void Cluster::OnGroupFailed(std::function<void(const Group&, const absl::Status&)> callback) {
  impl_->on_group_failed_ = std::move(callback);
}
int Cluster::free_cpu_slots() const {
  int free = 0;
  for (const auto& [name, node] : impl_->nodes_) free += node.hello.cpu_slots() - node.cpu_used;
  return free;
}
int Cluster::num_gpus() const {
  int gpus = 0;
  for (const auto& [name, node] : impl_->nodes_) gpus += node.hello.gpus_size();
  return gpus;
}
void Cluster::FillStatus(v1::GetStatusReply* reply) const {
  impl_->FillStatus(reply);
}
absl::Status Cluster::NodeJoined(const v1::NodeHello& hello, std::shared_ptr<NodeLink> link) {
  return impl_->NodeJoined(hello, std::move(link));
}
void Cluster::NodeEvent(const std::string& node, const v1::NodeEvent& event) {
  impl_->OnNodeEvent(node, event);
}
void Cluster::NodeGone(const std::string& node, const std::string& reason) {
  impl_->NodeGone(node, reason);
}
absl::Status Cluster::Announce(const v1::AnnounceRequest& request) {
  return impl_->Announce(request);
}

}  // namespace manta::controller
