#include "controller/core/core_impl.h"

#include "absl/strings/str_cat.h"
#include "common/base/status.h"

namespace manta::controller::core {
namespace {

constexpr absl::Duration kTick = absl::Milliseconds(500);

}  // namespace

Core::Impl::Impl(EventLoop& loop, Journal& journal, JobPort* jobs, CoreOptions options, std::vector<JournalEntry> rows)
    : loop_(loop),
      journal_(journal),
      jobs_(jobs),
      options_(std::move(options)),
      self_(std::make_shared<Impl*>(this)),
      outbox_(loop, journal, options_.fault == "ack_before_commit"),
      random_(options_.seed, options_.incarnation),
      started_(loop.Now()),
      last_tick_(loop.Now()) {
  Recover(std::move(rows));
  tick_timer_ = loop_.RunAfter(kTick, [this] { Tick(); });
}

Core::Impl::~Impl() {
  *self_ = nullptr;
  loop_.Cancel(tick_timer_);
}

void Core::Impl::Tick() {
  const absl::Time now = loop_.Now();
  // A head that did not run itself (stopped, or a long computation) has heard of nobody: that is nobody's fault.
  const absl::Duration missed = now - last_tick_ - kTick;
  if (missed > kTick) {
    for (auto& node : nodes_) {
      if (node != nullptr && node->alive()) node->last_beat += missed;
    }
    for (Group* group : Groups()) {
      for (Actor& rank : group->ranks) rank.last_beat += missed, rank.last_progress += missed;
    }
  }
  last_tick_ = now;
  CheckNodes(now);
  CheckActors(now);
  CheckDrains(now);
  tick_timer_ = loop_.RunAfter(kTick, [this] { Tick(); });
}

absl::Status Core::Impl::CheckMayChange() const {
  if (stopping_) return absl::CancelledError("the cluster is stopping");
  return journal_.health();
}

void Core::Impl::Changed() {
  ++version_;
  pass_due_ = true;
  if (turn_posted_) return;
  turn_posted_ = true;
  loop_.Post([self = self_] {
    if (*self != nullptr) (*self)->Turn();
  });
}

void Core::Impl::Turn() {
  turn_posted_ = false;
  if (pass_due_ && !recovering_ && !stopping_) {
    pass_due_ = false;
    SchedulePass();
  }
  CheckNodeWaiters();
  if (stopping_) FinishShutdown();
  graveyard_.clear();
  Deliver();
}

void Core::Impl::Emit(const Group& group, GroupEvent::Kind kind, const absl::Status& status) {
  events_.push_back({kind, group.key, kind == GroupEvent::kReady ? ReplyOf(group) : v1::GroupReply(), status});
  GroupChanged(group);
}

// Callbacks may ask for anything; only what they do to the lists matters here.
void Core::Impl::Deliver() {
  const auto self = self_;
  for (const GroupEvent& event : std::exchange(events_, {})) {
    const auto listeners = listeners_;
    for (const auto& [id, callback] : listeners) {
      (*callback)(event);
      if (*self == nullptr) return;
    }
  }
  const std::set<GroupKey> dirty = std::exchange(dirty_, {});
  if (dirty.empty() || watchers_.empty()) return;
  const auto watchers = watchers_;
  for (const auto& [id, watcher] : watchers) {
    // The group of a name may be another than last time: that one's changes count, and the name's being gone.
    const std::optional<ResolveKey> key = KeyOf(watcher.what);
    if (key.has_value() && dirty.count(key->group) == 0) continue;
    Tell(id);
    if (*self == nullptr) return;
  }
}

// A name is a group's own, else its role's, else an actor's.
std::optional<Core::Impl::ResolveKey> Core::Impl::KeyOf(const v1::ResolveRequest& what) const {
  const std::string& name = what.name();
  if (!what.actor_id().empty()) {
    const auto actor = ParseActorId(what.actor_id());
    if (!actor.has_value()) return std::nullopt;
    return ResolveKey{actor->first, actor->second};
  }
  if (const auto named = names_.find(name); named != names_.end()) return ResolveKey{named->second, -1};
  const size_t slash = name.find('/');
  const GroupKey role =
      slash == std::string::npos ? GroupKey{kOnlyJob, name} : GroupKey{name.substr(0, slash), name.substr(slash + 1)};
  if (groups_.count(role) > 0) return ResolveKey{role, -1};
  const auto actor = ParseActorId(name);
  if (actor.has_value() && groups_.count(actor->first) > 0) return ResolveKey{actor->first, actor->second};
  return std::nullopt;
}

std::optional<v1::ResolveReply> Core::Impl::Resolve(const v1::ResolveRequest& what) const {
  const std::optional<ResolveKey> key = KeyOf(what);
  const auto found = key.has_value() ? groups_.find(key->group) : groups_.end();
  v1::ResolveReply reply;
  if (found == groups_.end() || key->rank >= static_cast<int>(found->second->ranks.size())) {
    if (what.actor_id().empty()) return std::nullopt;
    *reply.mutable_failed() = ToProto(absl::NotFoundError(absl::StrCat("there is no actor ", what.actor_id())));
    return reply;
  }
  const Group& group = *found->second;
  for (int rank = 0; rank < static_cast<int>(group.ranks.size()); ++rank) {
    if (key->rank < 0 || key->rank == rank) *reply.add_ranks() = InfoOf(group, rank);
  }
  if (!group.failure.ok()) *reply.mutable_failed() = ToProto(group.failure);
  if (group.state == GroupState::kFailed || group.state == GroupState::kRemoving) {
    if (group.failure.ok()) reply.mutable_failed()->set_message(GroupName(group.key) + " is being stopped");
    reply.mutable_failed()->set_code(static_cast<int>(absl::StatusCode::kAborted));
  }
  return reply;
}

void Core::Impl::Tell(uint64_t watcher) {
  const auto found = watchers_.find(watcher);
  if (found == watchers_.end()) return;
  std::optional<v1::ResolveReply> reply = Resolve(found->second.what);
  const bool gone = !reply.has_value() && found->second.told;
  if (gone) {
    reply.emplace();
    *reply->mutable_failed() = ToProto(absl::NotFoundError(absl::StrCat(found->second.what.name(), " is gone")));
  }
  if (!reply.has_value()) return;
  found->second.told = !gone;
  const auto keep = found->second.callback;  // it may end its own subscription
  (*keep)(*reply);
}

Subscription Core::Impl::Watch(const v1::ResolveRequest& what, std::function<void(const v1::ResolveReply&)> callback) {
  const uint64_t id = next_listener_++;
  watchers_[id] = {what, std::make_shared<std::function<void(const v1::ResolveReply&)>>(std::move(callback))};
  loop_.Post([self = self_, id] {
    if (*self != nullptr) (*self)->Tell(id);
  });
  return Subscription([self = self_, id] {
    if (*self != nullptr) (*self)->watchers_.erase(id);
  });
}

Subscription Core::Impl::OnGroupEvent(std::function<void(const GroupEvent&)> callback) {
  const uint64_t id = next_listener_++;
  listeners_[id] = std::make_shared<std::function<void(const GroupEvent&)>>(std::move(callback));
  return Subscription([self = self_, id] {
    if (*self != nullptr) (*self)->listeners_.erase(id);
  });
}

void Core::Impl::Command(NodeId id, v1::NodeCommand command) {
  outbox_.Add([this, id, agent = nodes_[id]->hello.incarnation(), command = std::move(command)] {
    Node* node = nodes_[id].get();
    // What its stream loses is said again when it has joined again (Reconcile).
    if (node == nullptr || node->port == nullptr || node->hello.incarnation() != agent) return;
    node->port->Send(command);
  });
}

void Core::Impl::After(absl::Duration delay, std::function<void(Impl&)> then) {
  loop_.RunAfter(delay, [self = self_, then = std::move(then)] {
    if (*self != nullptr) then(**self);
  });
}

void Core::Impl::AfterFor(const Group& group, absl::Duration delay, std::function<void(Impl&, Group&)> then) {
  After(delay, [key = group.key, serial = group.serial, then = std::move(then)](Impl& impl) {
    Group* found = impl.Find(key);
    if (found != nullptr && found->serial == serial) then(impl, *found);
  });
}

Group* Core::Impl::Find(const GroupKey& key) {
  const auto found = groups_.find(key);
  return found == groups_.end() ? nullptr : found->second.get();
}

std::vector<Group*> Core::Impl::Groups() {
  std::vector<Group*> all;
  all.reserve(groups_.size());
  for (auto& [key, group] : groups_) all.push_back(group.get());
  return all;
}

std::string Core::Impl::RunDir(const std::string& job) const {
  const auto found = job_table_.find(job);
  const bool own = found != job_table_.end() && !found->second.request.run_dir().empty();
  return own ? found->second.request.run_dir() : options_.run_dir;
}

ActorIdentity Core::Impl::IdentityOf(const Group& group, int rank) const {
  return {ActorId(group.key, rank), rank, NodeName(group.ranks[rank].place.node), group.ranks[rank].pid};
}

// ---- The public face

Core::Core(EventLoop& loop, Journal& journal, JobPort* jobs, CoreOptions options, std::vector<JournalEntry> rows)
    : impl_(std::make_unique<Impl>(loop, journal, jobs, std::move(options), std::move(rows))) {}
Core::~Core() = default;

absl::StatusOr<uint64_t> Core::NodeJoined(const v1::NodeHello& hello, std::shared_ptr<AgentPort> port) {
  return impl_->NodeJoined(hello, std::move(port));
}
void Core::OnNodeEvent(uint64_t session, const v1::NodeEvent& event) {
  impl_->OnNodeEvent(session, event);
}
void Core::NodeDisconnected(uint64_t session, const absl::Status& why, bool left) {
  impl_->NodeDisconnected(session, why, left);
}
void Core::CreatePlacement(v1::PlacementRequest request, Answer<v1::PlacementReply> answer) {
  impl_->CreatePlacement(std::move(request), std::move(answer));
}
void Core::RemovePlacement(uint64_t id, Answer<v1::Done> answer) {
  impl_->RemovePlacement(id, std::move(answer));
}
void Core::CreateGroup(v1::GroupRequest request, Answer<v1::GroupReply> answer) {
  impl_->CreateGroup(std::move(request), std::move(answer));
}
void Core::RemoveGroup(GroupKey key, absl::Duration grace, Answer<v1::Done> answer) {
  impl_->RemoveGroup(key, grace, std::move(answer));
}
void Core::Shutdown(absl::Duration grace, std::string reason, Answer<v1::Done> answer) {
  impl_->Shutdown(grace, std::move(reason), std::move(answer));
}
void Core::WaitNodes(int count, absl::Duration timeout, Answer<v1::Done> answer) {
  impl_->WaitNodes(count, timeout, std::move(answer));
}
void Core::Drain(const v1::DrainRequest& request, Answer<v1::Done> answer) {
  impl_->Drain(request, std::move(answer));
}
void Core::SubmitJob(v1::SubmitRequest request, Answer<v1::JobInfo> answer) {
  impl_->SubmitJob(std::move(request), std::move(answer));
}
void Core::StopJob(const std::string& job, const std::string& reason, Answer<v1::Done> answer) {
  impl_->StopJob(job, reason, std::move(answer));
}
void Core::JobProgress(const std::string& job, int64_t step, int64_t num_steps) {
  const auto found = impl_->job_table_.find(job);
  if (found == impl_->job_table_.end()) return;
  found->second.step = step;
  found->second.num_steps = num_steps;
}
void Core::JobRestarts(const std::string& job, const std::string& why) {
  impl_->JobRestarts(job, why);
}
void Core::JobEnded(const std::string& job, const absl::Status& status) {
  impl_->JobEnded(job, status);
}
void Core::AddLocalJob(const std::string& job, const std::string& run_dir, int head_restarts) {
  impl_->AddLocalJob(job, run_dir, head_restarts);
}
Subscription Core::Watch(const v1::ResolveRequest& what, std::function<void(const v1::ResolveReply&)> callback) {
  return impl_->Watch(what, std::move(callback));
}
Subscription Core::OnGroupEvent(std::function<void(const GroupEvent&)> callback) {
  return impl_->OnGroupEvent(std::move(callback));
}
void Core::List(const v1::ListRequest& request, v1::ListReply* reply) const {
  impl_->List(request, reply);
}
absl::StatusOr<v1::DescribeReply> Core::Describe(const std::string& what) const {
  return impl_->Describe(what);
}
int Core::free_cpu_slots() const {
  int free = 0;
  for (const auto& node : impl_->nodes_) {
    if (node == nullptr || !node->alive()) continue;
    free += impl_->view_.node(node->id).has.cpu_slots - impl_->view_.node(node->id).cpu_used;
  }
  return free;
}
int Core::num_gpus() const {
  int gpus = 0;
  for (const auto& node : impl_->nodes_) {
    if (node != nullptr && node->alive()) gpus += node->hello.gpus_size();
  }
  return gpus;
}
int Core::num_nodes() const {
  return impl_->num_nodes();
}
bool Core::recovering() const {
  return impl_->recovering_;
}
Subscription Core::ReadLog(const std::string& actor_id, int64_t offset, int64_t max_bytes, bool follow,
                           std::function<void(absl::StatusOr<v1::LogChunk>)> sink) {
  return impl_->ReadLog(actor_id, offset, max_bytes, follow, std::move(sink));
}
void Core::Stacks(const v1::ListRequest& which, absl::Duration patience, std::function<void(const v1::StackDump&)> sink,
                  absl::AnyInvocable<void(absl::Status)> done) {
  impl_->Stacks(which, patience, std::move(sink), std::move(done));
}
std::vector<std::string> Core::CheckInvariants() const {
  return impl_->CheckInvariants();
}
uint64_t Core::version() const {
  return impl_->version_;
}

}  // namespace manta::controller::core
