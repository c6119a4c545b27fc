#include "controller/cluster/job_cluster.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"

namespace manta::controller {
namespace {

template <typename T>
core::Answer<T> Into(OneShot<absl::StatusOr<T>> result) {
  return [result](absl::StatusOr<T> answer) mutable { result.Set(std::move(answer)); };
}

}  // namespace

JobCluster::JobCluster(EventLoop& loop, core::Core& core, Options options)
    : loop_(loop),
      core_(core),
      options_(std::move(options)),
      events_(core.OnGroupEvent([this](const core::GroupEvent& event) { OnEvent(event); })) {}

JobCluster::~JobCluster() = default;

v1::GroupRequest JobCluster::RequestOf(const GroupSpec& spec) const {
  v1::GroupRequest request;
  request.set_role(spec.role);
  request.set_executable(spec.executable);
  for (const std::string& arg : spec.args) request.add_args(arg);
  request.mutable_env()->insert(spec.env.begin(), spec.env.end());
  request.set_start_deadline_ms(absl::ToInt64Milliseconds(spec.start_deadline));
  request.set_progress_timeout_ms(absl::ToInt64Milliseconds(spec.progress_timeout));
  request.mutable_restart()->set_kind(v1::RestartPolicy::FAIL_JOB);
  v1::PlacementRequest& placement = *request.mutable_placement();
  placement.set_job(options_.job);
  placement.set_repeat(spec.num_ranks);
  placement.set_wait_for_nodes(spec.waits_for_nodes);
  if (spec.one_node) placement.set_strategy(v1::STRATEGY_STRICT_PACK);
  if (spec.spread) placement.set_strategy(v1::STRATEGY_SPREAD);
  placement.set_ranks_per_node(spec.ranks_per_node);
  request.set_ports_per_rank(spec.ports_per_rank);
  placement.set_deadline_ms(absl::ToInt64Milliseconds(std::max(spec.placement_deadline, options_.queue_patience)));
  v1::Bundle& bundle = *placement.add_bundles();
  bundle.set_cpu_slots(spec.cpu_slots_per_rank);
  bundle.set_gpus(spec.gpus_per_rank);
  if (spec.shares_gpu && spec.gpus_per_rank == 0) bundle.set_gpu_slot(spec.role);  // looks on
  return request;
}

Task<absl::StatusOr<std::shared_ptr<Group>>> JobCluster::StartGroup(GroupSpec spec) {
  if (spec.num_ranks < 1) {
    co_return UserError(absl::StrCat("group ", spec.role, ": needs at least one rank, and no fewer than 0 slots"));
  }
  v1::GroupRequest request = RequestOf(spec);
  co_return co_await StartGroup(std::move(request));
}

Task<absl::StatusOr<std::shared_ptr<Group>>> JobCluster::StartGroup(v1::GroupRequest request) {
  if (stopping_) co_return absl::CancelledError("the cluster is stopping");
  const std::string role = request.role();
  if (groups_.count(role) > 0) {
    co_return absl::AlreadyExistsError(absl::StrCat("there is a group ", role, " already"));
  }
  request.mutable_placement()->set_job(options_.job);
  const auto entry = std::make_shared<Entry>();
  entry->detached = request.detached();
  groups_[role] = entry;
  OneShot<absl::StatusOr<v1::GroupReply>> ready(loop_);
  core_.CreateGroup(std::move(request), Into<v1::GroupReply>(ready));
  const absl::StatusOr<v1::GroupReply> reply = co_await ready.Wait();
  absl::Status status = reply.status();
  if (status.ok()) status = entry->failure;  // of the moment since the last one announced itself
  if (status.ok() && entry->stopping) status = absl::CancelledError(absl::StrCat("group ", role, " was stopped"));
  if (!status.ok()) {
    if (reply.ok() && !entry->stopping) co_await Remove(role, absl::Seconds(1));
    const auto found = groups_.find(role);
    if (found != groups_.end() && found->second == entry) groups_.erase(found);
    co_return status;
  }
  auto group = std::make_shared<Group>(role, reply->epoch());
  group->adopted_ = reply->adopted();
  for (const v1::ActorInfo& rank : reply->ranks()) {
    group->members_.push_back({rank.actor_id(), rank.rank(), rank.node(), rank.host_id(), rank.address(), rank.pid(),
                               std::vector<int>(rank.gpus().begin(), rank.gpus().end()),
                               options_.connect ? options_.connect(rank.address()) : nullptr,
                               std::vector<int>(rank.ports().begin(), rank.ports().end())});
  }
  entry->group = group;
  co_return group;
}

void JobCluster::OnEvent(const core::GroupEvent& event) {
  if (event.key.job != options_.job) return;
  if (on_group_event_) on_group_event_(event);
  if (event.kind != core::GroupEvent::kFailed) return;
  const auto found = groups_.find(event.key.role);
  if (found == groups_.end() || found->second->stopping) return;
  const std::shared_ptr<Entry> entry = found->second;
  if (!entry->failure.ok()) return;
  entry->failure = event.status;
  if (entry->group == nullptr) return;  // StartGroup reports it
  if (first_failure_.ok()) {
    first_failure_ = event.status;
    first_failed_ = event.key.role;
  }
  for (OneShot<bool>& waiter : std::exchange(failure_waiters_, {})) waiter.Set(true);
  entry->group->ended_.Cancel(event.status);
  if (on_group_failed_ && handled_.count(event.key.role) == 0) on_group_failed_(*entry->group, event.status);
}

Task<absl::Status> JobCluster::Remove(std::string role, absl::Duration grace) {
  OneShot<absl::StatusOr<v1::Done>> gone(loop_);
  core_.RemoveGroup({options_.job, role}, grace, Into<v1::Done>(gone));
  // The core bounds it, unless its journal's disk is full: then nothing is acknowledged.
  const auto timer = loop_.RunAfter(grace + absl::Seconds(5), [gone, role]() mutable {
    gone.Set(absl::DeadlineExceededError(absl::StrCat("group ", role, ": its end was not confirmed")));
  });
  const absl::StatusOr<v1::Done> done = co_await gone.Wait();
  loop_.Cancel(timer);
  co_return done.status();
}

Task<absl::Status> JobCluster::StopGroup(std::shared_ptr<Group> group, absl::Duration grace) {
  const auto found = groups_.find(group->role());
  if (found == groups_.end() || found->second->group != group) co_return absl::OkStatus();
  const std::shared_ptr<Entry> entry = found->second;
  entry->stopping = true;
  group->ended_.Cancel(absl::CancelledError(absl::StrCat("group ", group->role(), " was stopped")));
  absl::Status status = co_await Remove(group->role(), grace);
  const auto still = groups_.find(group->role());
  if (still != groups_.end() && still->second == entry) groups_.erase(still);
  co_return status;
}

std::vector<std::string> JobCluster::Roles() const {
  v1::ListRequest request;
  request.set_groups(true);
  request.set_job(options_.job);
  v1::ListReply reply;
  core_.List(request, &reply);
  std::vector<std::string> roles;
  for (const v1::GroupInfo& group : reply.groups()) {
    if (!group.detached()) roles.push_back(group.role());
  }
  return roles;
}

int JobCluster::RanksOf(const std::string& role) const {
  v1::ListRequest request;
  request.set_groups(true);
  request.set_job(options_.job);
  v1::ListReply reply;
  core_.List(request, &reply);
  for (const v1::GroupInfo& group : reply.groups()) {
    if (group.role() == role) return group.ranks_size();
  }
  return 0;
}

Task<absl::Status> JobCluster::EndGroups(std::vector<std::string> roles, absl::Duration grace,
                                         absl::Duration patience) {
  const absl::Time until = loop_.Now() + patience;
  for (const std::string& role : roles) {
    const auto found = groups_.find(role);
    if (found == groups_.end()) continue;
    found->second->stopping = true;
    if (found->second->group != nullptr) {
      found->second->group->ended_.Cancel(absl::CancelledError(absl::StrCat("group ", role, " was stopped")));
    }
  }
  for (const std::string& role : roles) {
    while (true) {
      const absl::Status gone = co_await Remove(role, grace);
      if (gone.ok()) break;
      if (stopping_ || loop_.Now() >= until) co_return gone;
      co_await Sleep(loop_, absl::Milliseconds(200), CancelToken());
    }
    groups_.erase(role);
    if (first_failed_ == role) {  // what fails from here on has reasons of its own
      first_failure_ = absl::OkStatus();
      first_failed_.clear();
    }
  }
  co_return absl::OkStatus();
}

std::shared_ptr<Group> JobCluster::Find(const std::string& role) const {
  const auto found = groups_.find(role);
  if (found == groups_.end() || found->second->stopping || !found->second->failure.ok()) return nullptr;
  return found->second->group;
}

void JobCluster::HandleFailuresOf(const std::vector<std::string>& roles) {
  handled_.insert(roles.begin(), roles.end());
}

std::string JobCluster::WaitsFor() const {
  const absl::StatusOr<v1::DescribeReply> known = core_.Describe(options_.job);
  return known.ok() && known->has_job() ? known->job().waits_for() : "";
}

Task<absl::Status> JobCluster::StopAll(absl::Duration grace) {
  stopping_ = true;
  std::vector<Task<absl::Status>> ends;
  const auto groups = groups_;
  for (const auto& [role, entry] : groups) {
    if (entry->detached) continue;
    entry->stopping = true;
    if (entry->group != nullptr) {
      entry->group->ended_.Cancel(absl::CancelledError(absl::StrCat("group ", role, " was stopped")));
    }
    ends.push_back(Remove(role, grace));
  }
  const std::vector<absl::Status> ended = co_await WhenAll(std::move(ends));
  const absl::Status status = FirstError(ended);
  if (status.ok()) co_return status;
  co_return absl::DeadlineExceededError("not every process was reported gone in time");
}

Task<absl::Status> JobCluster::WaitForNodes(int count, absl::Duration deadline) {
  if (stopping_) co_return absl::CancelledError("the cluster is stopping");
  OneShot<absl::StatusOr<v1::Done>> joined(loop_);
  core_.WaitNodes(count, deadline, Into<v1::Done>(joined));
  const absl::StatusOr<v1::Done> done = co_await joined.Wait();
  co_return done.status();
}

Task<bool> JobCluster::AwaitFailure(absl::Time until) {
  if (loop_.Now() >= until) co_return false;
  OneShot<bool> failure(loop_);
  failure_waiters_.push_back(failure);
  const auto timer = loop_.RunAfter(until - loop_.Now(), [failure]() mutable { failure.Set(false); });
  const bool failed = co_await failure.Wait();
  loop_.Cancel(timer);
  co_return failed;
}

Task<absl::Status> JobCluster::Explain(absl::Status status) {
  const bool maybe_dead =
      status.code() == absl::StatusCode::kUnavailable || status.code() == absl::StatusCode::kCancelled ||
      status.code() == absl::StatusCode::kAborted || status.code() == absl::StatusCode::kDeadlineExceeded;
  if (status.ok()) co_return status;
  const v1::ErrorInfo known = GetErrorInfo(status);
  const bool handled = handled_.count(first_failed_) > 0;
  if (handled && (!known.actor().empty() || !known.node().empty())) co_return status;  // the algorithm has looked already
  if (first_failure_.ok() && maybe_dead && known.actor().empty()) {
    const absl::Time until = loop_.Now() + options_.exit_report_wait + absl::Milliseconds(500);
    while (first_failure_.ok()) {
      const bool failed = co_await AwaitFailure(until);
      if (!failed) break;
    }
  }
  if (first_failure_.ok() || !maybe_dead) co_return status;
  co_return first_failure_;
}

void JobCluster::OnGroupFailed(std::function<void(const Group&, const absl::Status&)> callback) {
  on_group_failed_ = std::move(callback);
}

void JobCluster::OnGroupEvent(std::function<void(const core::GroupEvent&)> callback) {
  on_group_event_ = std::move(callback);
}

int JobCluster::free_cpu_slots() const {
  return core_.free_cpu_slots();
}
int JobCluster::num_gpus() const {
  return core_.num_gpus();
}

std::vector<JobCluster::NodeGpus> JobCluster::nodes() const {
  v1::ListRequest request;
  request.set_nodes(true);
  v1::ListReply reply;
  core_.List(request, &reply);
  std::vector<NodeGpus> nodes;
  for (const v1::NodeInfo& node : reply.nodes()) {
    if (node.state() != "LOST" && node.state() != "EXPECTED") nodes.push_back({node.node(), node.gpus_size()});
  }
  return nodes;
}

void JobCluster::FillStatus(v1::GetStatusReply* reply) const {
  v1::ListRequest request;
  request.set_nodes(true);
  v1::ListReply nodes;
  core_.List(request, &nodes);
  for (const v1::NodeInfo& node : nodes.nodes()) {
    v1::NodeStatus* status = reply->add_nodes();
    status->set_node(node.node());
    status->set_cpu_slots(node.cpu_slots());
    status->set_cpu_slots_used(node.cpu_used());
    *status->mutable_gpus() = node.gpus();
    status->set_gpus_used(node.gpus_used());
    status->set_alive(node.state() != "LOST" && node.state() != "EXPECTED");
  }
  v1::ListRequest mine;
  mine.set_actors(true);
  mine.set_job(options_.job);
  v1::ListReply actors;
  core_.List(mine, &actors);
  for (const v1::ActorInfo& actor : actors.actors()) {
    v1::ActorStatus* status = reply->add_actors();
    status->set_actor_id(actor.actor_id());
    status->set_node(actor.node());
    status->set_state(actor.state());
    status->set_pid(actor.pid());
    status->set_epoch(actor.epoch());
    status->set_address(actor.address());
    status->set_queued_calls(actor.beat().queued());
    status->set_resident_bytes(actor.beat().resident());
  }
}

}  // namespace manta::controller
