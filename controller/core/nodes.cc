// Nodes: who is there, who is silent, who is lost, and when what ran there is gone for certain.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "controller/cluster/death.h"
#include "controller/core/core_impl.h"
#include "spdlog/spdlog.h"

namespace manta::controller::core {
namespace {

constexpr absl::Duration kForget = absl::Hours(1);  // lost nodes that nothing is placed on any more
constexpr size_t kMaxLabels = 64, kMaxGpus = 64, kMaxName = 253;

absl::StatusOr<scheduler::NodeCapacity> CapacityOf(const v1::NodeHello& hello) {
  scheduler::NodeCapacity capacity{.cpu_slots = std::max(hello.cpu_slots(), 0), .memory_bytes = hello.memory_bytes()};
  if (hello.labels_size() > static_cast<int>(kMaxLabels) || hello.gpus_size() > static_cast<int>(kMaxGpus)) {
    return absl::InvalidArgumentError(
        absl::StrCat("node ", hello.node(), ": at most ", kMaxLabels, " labels and ", kMaxGpus, " GPUs"));
  }
  bool one_domain = true;
  for (const v1::Gpu& gpu : hello.gpus()) {
    const uint64_t bit = gpu.index() >= 0 && gpu.index() <= scheduler::kMaxGpuIndex ? uint64_t{1} << gpu.index() : 0;
    if (bit == 0 || (capacity.gpus & bit) != 0) {
      return absl::InvalidArgumentError(absl::StrCat("node ", hello.node(), ": GPU index ", gpu.index(),
                                                     bit == 0 ? " is not between 0 and 63" : " comes twice"));
    }
    capacity.gpus |= bit;
    if (gpu.slots_size() > 0) capacity.shared_slots[gpu.index()].assign(gpu.slots().begin(), gpu.slots().end());
    one_domain &= gpu.nvlink_domain() == hello.gpus(0).nvlink_domain();
  }
  // A node whose GPUs lie in several domains is one by itself: its ranks are never further apart than a node.
  if (one_domain && hello.gpus_size() > 0) capacity.domain = hello.gpus(0).nvlink_domain();
  capacity.labels.insert(hello.labels().begin(), hello.labels().end());
  return capacity;
}

}  // namespace

Node& Core::Impl::AddNode(const std::string& name) {
  const NodeId id = view_.Add(name);
  if (id >= static_cast<NodeId>(nodes_.size())) nodes_.resize(id + 1);
  nodes_[id] = std::make_unique<Node>();
  nodes_[id]->id = id;
  nodes_[id]->name = name;
  return *nodes_[id];
}

void Core::Impl::ForgetNode(Node& node) {
  view_.Remove(node.id);
  nodes_[node.id].reset();
}

int Core::Impl::num_nodes() const {
  return static_cast<int>(
      std::count_if(nodes_.begin(), nodes_.end(), [](const auto& node) { return node != nullptr && node->alive(); }));
}

absl::StatusOr<uint64_t> Core::Impl::NodeJoined(const v1::NodeHello& hello, std::shared_ptr<AgentPort> port) {
  if (hello.node().empty()) return absl::InvalidArgumentError("a node without a name cannot join");
  if (hello.node().size() > kMaxName) return absl::InvalidArgumentError("a node's name has 253 characters at most");
  if (stopping_) return absl::UnavailableError("the cluster is stopping");
  MANTA_ASSIGN_OR_RETURN(scheduler::NodeCapacity capacity, CapacityOf(hello));
  const NodeId known = view_.Find(hello.node());
  Node& node = known == scheduler::kNoNode ? AddNode(hello.node()) : *nodes_[known];
  const bool same_agent = hello.incarnation() != 0 && hello.incarnation() == node.hello.incarnation();
  if (same_agent && hello.said_at_us() != 0 && hello.said_at_us() <= node.hello.said_at_us()) {
    // What it runs is no longer what this says.
    return absl::AbortedError("a later attempt of this agent has come already");
  }
  if (node.alive() && !same_agent) {
    if (node.port != nullptr) {
      // Another of that name, or the same host started anew while its old stream is not yet known to be dead.
      const std::string there = absl::StrCat("a node ", hello.node(), " has joined already");
      if (loop_.Now() - node.last_beat < 1.5 * options_.node_beat) return absl::AlreadyExistsError(there);
      return absl::UnavailableError(absl::StrCat(there, "; it is silent, and will be given up if it stays so"));
    }
    LoseNode(node, "another agent of its name has come", LeaseEnd(node));
  }
  if (node.port != nullptr) {
    sessions_.erase(node.session);
    node.port->Close(absl::AbortedError("its agent has joined again"));
  }
  const bool first = !node.alive();
  node.hello = hello;
  node.hello.clear_running();
  node.port = std::move(port);
  node.session = NextToken();
  node.state = NodeState::kJoined;
  HeardOf(node);
  node.why_lost.clear();
  sessions_[node.session] = node.id;
  view_.SetCapacity(node.id, std::move(capacity));
  if (first) {
    spdlog::info("node {} has joined: {} CPU slots, {} GPUs", hello.node(), hello.cpu_slots(), hello.gpus_size());
  }
  const uint64_t session = node.session;
  SendWelcome(node, hello);
  Reconcile(node, hello);
  UpdateUsable(node);
  if (recovering_) CheckRecovered();
  Changed();
  return session;
}

void Core::Impl::SendWelcome(Node& node, const v1::NodeHello& hello) {
  v1::NodeCommand command;
  v1::NodeWelcome& welcome = *command.mutable_welcome();
  welcome.set_beat_interval_ms(absl::ToInt64Milliseconds(options_.node_beat));
  welcome.set_run_dir(options_.run_dir);
  welcome.set_fence(NextToken());
  welcome.set_lease_ms(absl::ToInt64Milliseconds(options_.node_timeout));
  if (options_.wait_on_controller_loss) {  // else nobody comes after this head, nor after the agent
    welcome.set_agent_grace_ms(absl::ToInt64Milliseconds(options_.agent_grace));
    welcome.set_controller_grace_ms(absl::ToInt64Milliseconds(options_.controller_grace));
  }
  welcome.set_worker_token(options_.worker_token);
  node.unwanted.clear();
  for (const v1::ActorReport& report : hello.running()) {
    const auto [group, rank] = FindActor(report.actor_id(), report.epoch(), node.id);
    const bool expected = group != nullptr && group->ranks[rank].may_run() && !group->ranks[rank].failed &&
                          group->ranks[rank].agent == hello.incarnation();
    const bool over = report.has_exited() || report.has_start_failed() || report.snapshot().has_exited();
    if (over || expected) continue;
    v1::ActorRef* unwanted = welcome.add_unwanted();
    unwanted->set_actor_id(report.actor_id());
    unwanted->set_epoch(report.epoch());
    node.unwanted.emplace(report.actor_id(), report.epoch());
  }
  node.port->Send(command);
}

void Core::Impl::Reconcile(Node& node, const v1::NodeHello& hello) {
  std::set<std::pair<std::string, uint64_t>> listed;
  for (const v1::ActorReport& report : hello.running()) {
    listed.emplace(report.actor_id(), report.epoch());
    if (node.unwanted.count({report.actor_id(), report.epoch()}) == 0) OnReport(node, report);
  }
  for (Group* group : Groups()) {
    for (int i = 0; i < static_cast<int>(group->ranks.size()); ++i) {
      Actor& rank = group->ranks[i];
      if (rank.place.node != node.id || !rank.may_run()) continue;
      const bool is_listed = listed.count({ActorId(group->key, i), rank.epoch}) > 0;
      if (rank.agent != hello.incarnation() || hello.incarnation() == 0) {
        // Of an agent before this one. Nobody adopted it, so its shim ends it, if it has not ended yet.
        const absl::Time ended =
            Fault("no_fencing") ? loop_.Now()
                                : std::max(LeaseEnd(node), loop_.Now() + options_.agent_grace + options_.fence_margin);
        rank.gone_at = std::min(rank.gone_at, ended);
        node.held_until = std::max(node.held_until, rank.gone_at);
        RankFailed(*group, i, NodeLost(node.name, "its agent was started anew", {}));
      } else if (is_listed && rank.phase == ActorPhase::kStopping) {
        StopRank(*group, i, absl::ZeroDuration());  // the order may have been lost with the stream
      } else if (is_listed) {
        // OnReport has said what there is to say; a failed one was put among the unwanted.
      } else if (rank.phase == ActorPhase::kStarting && !rank.failed) {
        Command(node.id, StartCommand(*group, i));  // the same (actor, epoch) is never started twice by an agent
      } else if (rank.phase == ActorPhase::kStopping || rank.failed) {
        RankGone(*group, i);
      } else {
        const ActorIdentity identity = IdentityOf(*group, i);
        rank.phase = ActorPhase::kGone;
        RankFailed(*group, i, ActorNotStarted(identity, "its agent does not know it any more"));
        RankGone(*group, i);
      }
    }
  }
  for (Group* group : Groups()) {
    for (int i = 0; i < static_cast<int>(group->ranks.size()); ++i) {
      if (group->ranks[i].place.node == node.id && group->ranks[i].phase == ActorPhase::kReady) SendFencesTo(*group, i);
    }
  }
}

absl::Time Core::Impl::LeaseEnd(const Node& node) const {
  const absl::Duration lease = options_.node_timeout + options_.fence_margin;
  if (Fault("no_fencing")) return loop_.Now();
  if (node.last_beat != absl::InfinitePast()) return node.last_beat + lease;
  // Never heard by this head: its agent may have gone on by itself for as long as it was told that it may.
  return started_ + (options_.wait_on_controller_loss ? options_.controller_grace + lease : lease);
}

void Core::Impl::OnNodeEvent(uint64_t session, const v1::NodeEvent& event) {
  const auto found = sessions_.find(session);
  if (found == sessions_.end()) return;
  Node& node = *nodes_[found->second];
  HeardOf(node);
  if (node.state == NodeState::kSuspect) {
    node.state = NodeState::kJoined;
    UpdateUsable(node);
  }
  switch (event.event_case()) {
    case v1::NodeEvent::kBeat: {
      v1::NodeCommand ack;
      ack.mutable_ack()->set_sequence(event.beat().sequence());
      if (node.port != nullptr) node.port->Send(ack);
      for (const v1::ActorReport& report : event.beat().reports()) OnReport(node, report);
      break;
    }
    case v1::NodeEvent::kReport:
      OnReport(node, event.report());
      break;
    case v1::NodeEvent::kPorts:
      PortsLeased(event.ports());
      break;
    case v1::NodeEvent::kLog:
      OnLogChunk(event.log());
      break;
    case v1::NodeEvent::kStacks:
      OnStacks(event.stacks());
      break;
    default:
      break;
  }
}

// Of whose actors nothing could be heard meanwhile: that is not their silence.
void Core::Impl::HeardOf(Node& node) {
  const absl::Time before = std::exchange(node.last_beat, loop_.Now());
  const absl::Duration gap = node.last_beat - before;
  if (before == absl::InfinitePast() || gap <= 2 * options_.node_beat) return;
  for (Group* group : Groups()) {
    for (Actor& rank : group->ranks) {
      if (rank.place.node == node.id) rank.last_beat += gap, rank.last_progress += gap;
    }
  }
}

void Core::Impl::NodeDisconnected(uint64_t session, const absl::Status& why, bool left) {
  const auto found = sessions_.find(session);
  if (found == sessions_.end()) return;
  Node& node = *nodes_[found->second];
  sessions_.erase(found);
  node.port = nullptr;
  node.session = 0;
  EndLogsOf(node.id, absl::UnavailableError(absl::StrCat("the agent of ", node.name, " is away")));
  if (stopping_) {
    // Told to end, and it has: its workers with it.
    LoseNode(node, "it has ended", loop_.Now());
  } else if (left || node.hello.incarnation() == 0) {
    // One that says that it leaves has ended its workers; an agent without a lineage does not come back.
    LoseNode(node, std::string(why.message()), left ? loop_.Now() : LeaseEnd(node));
  }
  Changed();
}

void Core::Impl::LoseNode(Node& node, const std::string& why, absl::Time gone_at) {
  if (node.port != nullptr) {
    sessions_.erase(node.session);
    node.port->Close(absl::UnavailableError(why));
    node.port = nullptr;
    node.session = 0;
  }
  node.state = NodeState::kLost;
  node.lost_at = loop_.Now();
  node.why_lost = why;
  node.held_until = std::max(node.held_until, gone_at);
  if (!stopping_) spdlog::error("node {} is lost: {}", node.name, why);
  UpdateUsable(node);
  EndLogsOf(node.id, absl::UnavailableError(absl::StrCat("node ", node.name, " is lost")));
  std::vector<std::string> last_lines;
  if (options_.node_last_lines) last_lines = options_.node_last_lines(node.name);
  const absl::Status lost = NodeLost(node.name, why, last_lines);
  for (Group* group : Groups()) {
    for (int i = 0; i < static_cast<int>(group->ranks.size()); ++i) {
      Actor& rank = group->ranks[i];
      if (rank.place.node != node.id || rank.gone()) continue;
      rank.gone_at = rank.may_run() ? std::min(rank.gone_at, gone_at) : loop_.Now();
      RankFailed(*group, i, lost);
      if (rank.gone_at <= loop_.Now()) RankGone(*group, i);
    }
  }
  Changed();
}

void Core::Impl::CheckNodes(absl::Time now) {
  for (size_t i = 0; i < nodes_.size(); ++i) {
    if (nodes_[i] == nullptr) continue;
    Node& node = *nodes_[i];
    if (node.alive()) {
      const absl::Duration silent = now - node.last_beat;
      if (silent >= options_.node_timeout) {
        LoseNode(node, absl::StrCat("it has not been heard of for ", absl::FormatDuration(options_.node_timeout)),
                 LeaseEnd(node));
        continue;
      }
      if (silent >= options_.node_suspect && node.state == NodeState::kJoined) node.state = NodeState::kSuspect;
      UpdateUsable(node);
    } else if (node.state == NodeState::kLost && now - node.lost_at > kForget && Idle(node) &&
               view_.node(node.id).cpu_used == 0 && view_.node(node.id).gpus_used == 0 && !node.draining) {
      bool placed_on = false;
      for (const auto& [id, placement] : placements_) {
        for (const auto& place : placement.ranks) placed_on |= place.node == node.id;
      }
      if (!placed_on) ForgetNode(node);
    }
  }
}

void Core::Impl::UpdateUsable(Node& node) {
  using scheduler::Usable;
  Usable usable = Usable::kYes;
  if (!node.alive()) {
    usable = Usable::kAbsent;
  } else if (node.draining) {
    usable = Usable::kDraining;
  } else if (node.state == NodeState::kSuspect) {
    usable = Usable::kSuspect;
  } else if (loop_.Now() < node.held_until || !node.unwanted.empty()) {
    usable = Usable::kHeld;
  }
  if (view_.node(node.id).usable == usable) return;
  view_.SetUsable(node.id, usable);
  Changed();
}

void Core::Impl::WaitNodes(int count, absl::Duration timeout, Answer<v1::Done> answer) {
  node_waiters_.push_back({count, loop_.Now() + timeout, timeout, std::move(answer)});
  After(timeout, [](Impl& impl) { impl.CheckNodeWaiters(); });
  Changed();
}

void Core::Impl::CheckNodeWaiters() {
  const int nodes = num_nodes();
  for (auto it = node_waiters_.begin(); it != node_waiters_.end();) {
    absl::StatusOr<v1::Done> result = v1::Done();
    if (stopping_) {
      result = absl::CancelledError("the cluster is stopping");
    } else if (nodes < it->count) {
      if (loop_.Now() < it->until) {
        ++it;
        continue;
      }
      result = absl::DeadlineExceededError(
          absl::StrCat(nodes, " of ", it->count, " nodes have joined within ", absl::FormatDuration(it->timeout)));
    }
    Reply<v1::Done>(std::move(it->answer), std::move(result));
    it = node_waiters_.erase(it);
  }
}

}  // namespace manta::controller::core
