#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "controller/cluster/cluster_impl.h"
#include "controller/node/captured_log.h"
#include "spdlog/spdlog.h"

namespace manta::controller {
namespace {

constexpr absl::Duration kCheckInterval = absl::Milliseconds(500);

}  // namespace

Cluster::Impl::Impl(EventLoop& loop, ActorPort& actors, Options options)
    : loop_(loop), actors_(actors), options_(std::move(options)), last_check_(loop.Now()) {
  beat_timer_ = loop_.RunAfter(kCheckInterval, [this] { CheckBeats(); });
}

Cluster::Impl::~Impl() {
  loop_.Cancel(beat_timer_);
}

void Cluster::Impl::Changed() {
  for (OneShot<bool>& waiter : std::exchange(change_waiters_, {})) waiter.Set(true);
}

// ---- Nodes
// ------------------------------------------------------------------------------------------------------------

absl::Status Cluster::Impl::NodeJoined(const v1::NodeHello& hello, std::shared_ptr<NodeLink> link) {
  if (hello.node().empty()) return absl::InvalidArgumentError("a node without a name cannot join");
  if (stopping_) return absl::UnavailableError("the cluster is stopping");
  if (nodes_.count(hello.node()) > 0) {
    return absl::AlreadyExistsError(absl::StrCat("a node ", hello.node(), " has joined already"));
  }
  NodeRecord& node = nodes_[hello.node()];
  node.hello = hello;
  node.link = std::move(link);
  node.last_beat = loop_.Now();
  lost_nodes_.erase(hello.node());
  v1::NodeCommand command;
  v1::NodeWelcome* welcome = command.mutable_welcome();
  welcome->set_beat_interval_ms(absl::ToInt64Milliseconds(options_.node_beat));
  welcome->set_run_dir(options_.run_dir);
  welcome->set_stop_on_controller_loss(true);
  node.link->Send(command);
  spdlog::info("node {} has joined: {} CPU slots, {} GPUs", hello.node(), hello.cpu_slots(), hello.gpus_size());
  Changed();
  return absl::OkStatus();
}

void Cluster::Impl::OnNodeEvent(const std::string& name, const v1::NodeEvent& event) {
  const auto found = nodes_.find(name);
  if (found == nodes_.end()) return;
  found->second.last_beat = loop_.Now();
  if (event.has_started()) ActorStarted(event.started(), name);
  if (event.has_exited()) ActorExited(event.exited(), name);
  if (event.has_start_failed()) StartFailed(event.start_failed(), name);
}

void Cluster::Impl::NodeGone(const std::string& name, const std::string& reason) {
  const auto found = nodes_.find(name);
  if (found == nodes_.end()) return;
  found->second.link->Close(absl::UnavailableError(reason));
  nodes_.erase(found);
  if (!stopping_) {
    lost_nodes_[name] = reason;
    spdlog::error("node {} is lost: {}", name, reason);
  }
  // The agent's own log, where it lies in this run's folder: `manta run` calls it node.log.
  auto last_lines = node::LastLinesOf(absl::StrCat(options_.run_dir, "/logs/node-", name, ".log"));
  if (last_lines.empty()) last_lines = node::LastLinesOf(absl::StrCat(options_.run_dir, "/logs/node.log"));
  const absl::Status lost = NodeLost(name, reason, last_lines);
  const auto groups = groups_;
  for (const auto& [role, record] : groups) {
    for (ActorRecord& actor : record->actors) {
      if (actor.identity.node != name || actor.ended) continue;
      FailGroup(*record, actor, lost);
      ActorEnded(*record, actor, v1::ACTOR_STATE_FAILED);
    }
  }
  Changed();
}

// ---- Actors
// -----------------------------------------------------------------------------------------------------------

std::pair<std::shared_ptr<GroupRecord>, ActorRecord*> Cluster::Impl::Find(const std::string& actor_id, uint64_t epoch,
                                                                          const std::string* node) {
  const auto found = groups_.find(actor_id.substr(0, actor_id.rfind('-')));
  if (found == groups_.end()) return {};
  for (ActorRecord& actor : found->second->actors) {
    if (actor.identity.actor_id != actor_id) continue;
    if (actor.epoch != epoch || (node != nullptr && actor.identity.node != *node)) return {};
    return {found->second, &actor};
  }
  return {};
}

void Cluster::Impl::ActorStarted(const v1::ActorStarted& started, const std::string& node) {
  const auto [record, actor] = Find(started.actor_id(), started.epoch(), &node);
  if (actor != nullptr) {
    actor->identity.pid = started.pid();
    return;
  }
  // Of an epoch that is over: nobody will ever stop it.
  v1::NodeCommand command;
  command.mutable_stop()->set_actor_id(started.actor_id());
  command.mutable_stop()->set_epoch(started.epoch());
  nodes_.at(node).link->Send(command);
}

void Cluster::Impl::StartFailed(const v1::ActorStartFailed& failed, const std::string& node) {
  const auto [record, actor] = Find(failed.actor_id(), failed.epoch(), &node);
  if (actor == nullptr || actor->ended) return;
  FailGroup(*record, *actor, ActorNotStarted(actor->identity, failed.message()));
  ActorEnded(*record, *actor, v1::ACTOR_STATE_FAILED);
}

void Cluster::Impl::ActorExited(const v1::ActorExited& exited, const std::string& node) {
  const auto [record, actor] = Find(exited.actor_id(), exited.epoch(), &node);
  if (actor == nullptr || actor->ended) return;
  if (exited.pid() > 0) actor->identity.pid = exited.pid();
  if (!exited.asked_to_stop()) FailGroup(*record, *actor, ActorDied(actor->identity, exited));
  ActorEnded(*record, *actor, exited.asked_to_stop() ? v1::ACTOR_STATE_STOPPED : v1::ACTOR_STATE_FAILED);
}

absl::Status Cluster::Impl::Announce(const v1::AnnounceRequest& request) {
  const auto [record, actor] = Find(request.actor_id(), request.epoch(), nullptr);
  if (actor == nullptr || actor->ended || record->stopping) {
    return absl::PermissionDeniedError(absl::StrCat("no actor ", request.actor_id(), " is expected in epoch ",
                                                    request.epoch(), ": this process must end"));
  }
  if (actor->state == v1::ACTOR_STATE_READY) {
    // The same again is an answer that was lost; another process is an impostor.
    if (actor->address == request.address()) return absl::OkStatus();
    return absl::PermissionDeniedError(absl::StrCat(request.actor_id(), " has announced itself from ", actor->address));
  }
  const std::string id = request.actor_id();
  const uint64_t epoch = request.epoch();
  auto connection = actors_.Connect(
      request.address(),
      [this, id, epoch](const v1::ActorBeat& beat) {
        const auto [record, actor] = Find(id, epoch, nullptr);
        if (actor == nullptr) return;
        actor->last_beat = loop_.Now();
        actor->beat = beat;
      },
      [this, id, epoch](const absl::Status&) { ConnectionEnded(id, epoch); });
  if (!connection.ok()) return connection.status();
  actor->connection = std::move(*connection);
  actor->identity.pid = request.pid();
  actor->address = request.address();
  actor->host_id = request.host_id();
  actor->state = v1::ACTOR_STATE_READY;
  actor->last_beat = loop_.Now();
  const bool all_ready = std::all_of(record->actors.begin(), record->actors.end(),
                                     [](const ActorRecord& a) { return a.state == v1::ACTOR_STATE_READY; });
  if (all_ready) record->started.Set(absl::OkStatus());
  return absl::OkStatus();
}

void Cluster::Impl::ConnectionEnded(const std::string& actor_id, uint64_t epoch) {
  // Its process is likely dead; the agent says how in a moment. If it does not, the broken connection is the reason.
  loop_.RunAfter(options_.exit_report_wait, [this, actor_id, epoch] {
    const auto [record, actor] = Find(actor_id, epoch, nullptr);
    if (actor == nullptr || actor->ended || record->stopping) return;
    v1::ErrorInfo info;
    info.set_origin(v1::ORIGIN_WORKER_DIED);
    info.set_actor(actor_id);
    info.set_rank(actor->identity.rank);
    info.set_node(actor->identity.node);
    info.set_exit_code(-1);
    FailGroup(*record, *actor,
              WithErrorInfo(absl::UnavailableError(absl::StrCat("the connection to ", actor_id, " broke")), info));
    StopActor(*actor, absl::ZeroDuration());
  });
}

void Cluster::Impl::FailGroup(GroupRecord& record, ActorRecord& actor, const absl::Status& status) {
  if (record.stopping || !record.failure.ok()) return;
  record.failure = status;
  spdlog::error("group {} has failed: {}", record.group->role(), std::string(status.message()));
  const v1::ErrorInfo info = GetErrorInfo(status);  // outlives the loop over its lines
  for (const std::string& line : info.last_lines()) spdlog::error("  | {}", line);
  v1::PeerLostRequest lost;
  lost.set_epoch(actor.epoch);
  lost.set_rank(actor.identity.rank);
  lost.set_reason(std::string(status.message()));
  for (ActorRecord& peer : record.actors) {
    if (&peer != &actor && !peer.ended && peer.connection != nullptr) peer.connection->PeerLost(lost);
  }
  record.started.Set(status);
  if (!record.ready) return;  // StartGroup reports it
  if (first_failure_.ok()) first_failure_ = status;
  record.group->ended_.Cancel(status);
  if (on_group_failed_) on_group_failed_(*record.group, status);
  Changed();
}

void Cluster::Impl::ActorEnded(GroupRecord& record, ActorRecord& actor, v1::ActorState state) {
  actor.ended = true;
  actor.state = state;
  // Not at once: this may be a callback of that connection.
  loop_.Post([connection = std::shared_ptr<ActorConnection>(std::move(actor.connection))] {});
  const auto node = nodes_.find(actor.identity.node);
  if (node != nodes_.end()) {
    node->second.cpu_used -= actor.cpu_slots;
    for (int gpu : actor.gpus) node->second.gpus_used.erase(gpu);
  }
  if (record.AllEnded()) record.gone.Set(true);
  Changed();
}

void Cluster::Impl::StopActor(const ActorRecord& actor, absl::Duration grace) {
  const auto node = nodes_.find(actor.identity.node);
  if (node == nodes_.end()) return;
  v1::NodeCommand command;
  v1::StopActor* stop = command.mutable_stop();
  stop->set_actor_id(actor.identity.actor_id);
  stop->set_epoch(actor.epoch);
  stop->set_grace_ms(absl::ToInt64Milliseconds(grace));
  node->second.link->Send(command);
}

void Cluster::Impl::CheckBeats() {
  const absl::Time now = loop_.Now();
  // A controller that did not run itself (stopped, or a long computation) has heard of nobody: that is nobody's fault.
  const absl::Duration missed = now - last_check_ - kCheckInterval;
  const absl::Duration credit = missed > kCheckInterval ? missed : absl::ZeroDuration();
  last_check_ = now;
  std::vector<std::string> silent_nodes;
  for (auto& [name, node] : nodes_) {
    node.last_beat += credit;
    if (now - node.last_beat > options_.node_timeout) silent_nodes.push_back(name);
  }
  for (const std::string& name : silent_nodes) {
    NodeGone(name, absl::StrCat("it has not been heard of for ", absl::FormatDuration(options_.node_timeout)));
  }
  const auto groups = groups_;
  for (const auto& [role, record] : groups) {
    for (ActorRecord& actor : record->actors) {
      actor.last_beat += credit;
      if (actor.ended || record->stopping || actor.state != v1::ACTOR_STATE_READY) continue;
      if (now - actor.last_beat <= options_.actor_timeout) continue;
      FailGroup(*record, actor, ActorSilent(actor.identity, now - actor.last_beat));
      StopActor(actor, absl::ZeroDuration());
    }
  }
  beat_timer_ = loop_.RunAfter(kCheckInterval, [this] { CheckBeats(); });
}

void Cluster::Impl::FillStatus(v1::GetStatusReply* reply) const {
  reply->set_run_dir(options_.run_dir);
  for (const auto& [name, node] : nodes_) {
    v1::NodeStatus* status = reply->add_nodes();
    status->set_node(name);
    status->set_cpu_slots(node.hello.cpu_slots());
    status->set_cpu_slots_used(node.cpu_used);
    *status->mutable_gpus() = node.hello.gpus();
    status->set_gpus_used(static_cast<int>(node.gpus_used.size()));
    status->set_alive(true);
  }
  for (const auto& [name, reason] : lost_nodes_) {
    v1::NodeStatus* status = reply->add_nodes();
    status->set_node(name);
    status->set_alive(false);
  }
  for (const auto& [role, record] : groups_) {
    for (const ActorRecord& actor : record->actors) {
      v1::ActorStatus* status = reply->add_actors();
      status->set_actor_id(actor.identity.actor_id);
      status->set_node(actor.identity.node);
      status->set_state(actor.state);
      status->set_pid(actor.identity.pid);
      status->set_epoch(actor.epoch);
      status->set_address(actor.address);
      status->set_queued_calls(actor.beat.queued_calls());
      status->set_resident_bytes(actor.beat.resident_bytes());
    }
  }
}

}  // namespace manta::controller
