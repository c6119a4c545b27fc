// Lists and descriptions: what people and programs read. Nothing here changes anything.
#include "common/base/status.h"

#include <algorithm>
#include <bit>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "controller/core/core_impl.h"

namespace manta::controller::core {
namespace {

const char* Name(const Node& node) {
  if (node.state == NodeState::kExpected) return "EXPECTED";
  if (node.state == NodeState::kLost) return "LOST";
  if (node.draining) return "DRAINING";
  return node.state == NodeState::kSuspect ? "SUSPECT" : "JOINED";
}

v1::ActorState StateOf(const Actor& rank) {
  switch (rank.phase) {
    case ActorPhase::kPlaced:
      return v1::ACTOR_STATE_PENDING;
    case ActorPhase::kStarting:
      return v1::ACTOR_STATE_STARTING;
    case ActorPhase::kReady:
      return v1::ACTOR_STATE_READY;
    case ActorPhase::kStopping:
      return v1::ACTOR_STATE_DRAINING;
    case ActorPhase::kUnknown:
      return v1::ACTOR_STATE_UNSPECIFIED;
    case ActorPhase::kGone:
      return rank.failed ? v1::ACTOR_STATE_FAILED : v1::ACTOR_STATE_STOPPED;
  }
  return v1::ACTOR_STATE_UNSPECIFIED;
}

}  // namespace

v1::NodeInfo Core::Impl::InfoOf(const Node& node) const {
  const scheduler::NodeView& view = view_.node(node.id);
  v1::NodeInfo info;
  info.set_node(node.name);
  info.set_state(Name(node));
  info.set_cpu_slots(view.has.cpu_slots);
  info.set_cpu_used(view.cpu_used);
  *info.mutable_gpus() = node.hello.gpus();
  info.set_gpus_used(std::popcount(view.gpus_used));
  *info.mutable_labels() = node.hello.labels();
  info.set_memory_bytes(node.hello.memory_bytes());
  if (node.alive()) info.set_silent_ms(absl::ToInt64Milliseconds(loop_.Now() - node.last_beat));
  info.set_address(node.hello.address());
  *info.mutable_missing() = node.hello.missing();
  info.set_why_lost(node.why_lost);
  return info;
}

v1::ActorInfo Core::Impl::InfoOf(const Group& group, int i) const {
  const Actor& rank = group.ranks[i];
  v1::ActorInfo info;
  info.set_actor_id(ActorId(group.key, i));
  info.set_rank(i);
  info.set_epoch(rank.epoch);
  info.set_state(StateOf(rank));
  info.set_pid(rank.pid);
  info.set_address(rank.address);
  info.set_step(rank.step);
  if (rank.place.node != scheduler::kNoNode && nodes_[rank.place.node] != nullptr) {
    info.set_node(nodes_[rank.place.node]->name);
    info.set_host_id(nodes_[rank.place.node]->hello.host_id());
  }
  for (uint64_t left = rank.place.gpus; left != 0; left &= left - 1) info.add_gpus(std::countr_zero(left));
  for (int32_t port : rank.ports) info.add_ports(port);
  info.mutable_beat()->set_state(StateOf(rank));
  info.mutable_beat()->set_queued(rank.queued);
  info.mutable_beat()->set_completed(rank.completed);
  info.mutable_beat()->set_resident(rank.resident);
  info.mutable_beat()->set_refused(rank.refused);
  info.mutable_beat()->set_running(rank.running);
  if (!rank.died.ok()) *info.mutable_died() = ToProto(rank.died);
  return info;
}

v1::GroupInfo Core::Impl::InfoOf(const Group& group) const {
  v1::GroupInfo info;
  info.set_job(group.key.job);
  info.set_role(group.key.role);
  info.set_state(core::Name(group.state));
  info.set_epoch(group.epoch);
  info.set_restarts(group.restarts);
  info.set_name(group.request.name());
  info.set_detached(group.request.detached());
  info.set_waits_for(group.waits_for);
  for (int i = 0; i < static_cast<int>(group.ranks.size()); ++i) *info.add_ranks() = InfoOf(group, i);
  for (const std::string& line : group.history) info.add_history(line);
  return info;
}

void Core::Impl::List(const v1::ListRequest& request, v1::ListReply* reply) const {
  const int limit = request.limit() > 0 ? request.limit() : INT32_MAX;
  // Each kind goes on after the name `after`, where one kind alone is asked for.
  const auto full = [&](int size, const std::string& last) {
    if (size < limit) return false;
    reply->set_next(last);
    return true;
  };
  if (request.nodes()) {
    for (NodeId id : view_.order()) {
      const Node& node = *nodes_[id];
      if (!request.after().empty() && node.name <= request.after()) continue;
      *reply->add_nodes() = InfoOf(node);
      if (full(reply->nodes_size(), node.name)) break;
    }
  }
  const auto wanted = [&](const GroupKey& key) {
    return (request.job().empty() || key.job == request.job()) &&
           (request.role().empty() || key.role == request.role()) &&
           (request.after().empty() || key.Name() > request.after());
  };
  if (request.groups()) {
    for (const auto& [key, group] : groups_) {
      if (!wanted(key)) continue;
      *reply->add_groups() = InfoOf(*group);
      if (full(reply->groups_size(), key.Name())) break;
    }
  }
  if (request.actors()) {
    for (const auto& [key, group] : groups_) {
      if (!wanted(key)) continue;
      for (int i = 0; i < static_cast<int>(group->ranks.size()); ++i) *reply->add_actors() = InfoOf(*group, i);
      if (full(reply->actors_size(), key.Name())) break;
    }
  }
  if (request.jobs()) {
    for (const auto& [id, job] : job_table_) {
      if (!request.job().empty() && id != request.job()) continue;
      if (!request.after().empty() && id <= request.after()) continue;
      *reply->add_jobs() = InfoOf(job);
      if (full(reply->jobs_size(), id)) break;
    }
  }
}

absl::StatusOr<v1::DescribeReply> Core::Impl::Describe(const std::string& what) const {
  v1::DescribeReply reply;
  bool found = false;
  if (const NodeId node = view_.Find(what); node != scheduler::kNoNode) {
    *reply.mutable_node() = InfoOf(*nodes_[node]);
    for (const auto& [key, group] : groups_) {
      for (int i = 0; i < static_cast<int>(group->ranks.size()); ++i) {
        if (group->ranks[i].place.node == node) reply.add_events(absl::StrCat("runs ", ActorId(key, i)));
      }
    }
    found = true;
  }
  if (const auto job = job_table_.find(what); job != job_table_.end()) {
    *reply.mutable_job() = InfoOf(job->second);
    for (const std::string& line : job->second.history) reply.add_events(line);
    found = true;
  }
  const size_t slash = what.find('/');
  const GroupKey key =
      slash == std::string::npos ? GroupKey{kOnlyJob, what} : GroupKey{what.substr(0, slash), what.substr(slash + 1)};
  auto group = groups_.find(key);
  if (const auto named = names_.find(what); named != names_.end()) group = groups_.find(named->second);
  if (group != groups_.end()) {
    *reply.mutable_group() = InfoOf(*group->second);
    *reply.mutable_events() = reply.group().history();
    for (const std::string& line : GetErrorInfo(group->second->failure).last_lines()) reply.add_last_lines(line);
    found = true;
  }
  if (const auto actor = ParseActorId(what); actor.has_value()) {
    const auto of = groups_.find(actor->first);
    if (of != groups_.end() && actor->second < static_cast<int>(of->second->ranks.size())) {
      *reply.mutable_actor() = InfoOf(*of->second, actor->second);
      for (const std::string& line : of->second->history) reply.add_events(line);
      for (const std::string& line : GetErrorInfo(of->second->ranks[actor->second].died).last_lines()) {
        reply.add_last_lines(line);
      }
      found = true;
    }
  }
  if (found) return reply;
  // A role or an actor without its job is the one job's that has it.
  std::vector<std::string> meant;
  const auto actor = ParseActorId(what);
  for (const auto& [of, candidate] : groups_) {
    const bool rank = actor.has_value() && slash == std::string::npos && of.role == actor->first.role &&
                      actor->second < static_cast<int>(candidate->ranks.size());
    if (of.job != kOnlyJob && (of.role == what || rank)) meant.push_back(absl::StrCat(of.job, "/", what));
  }
  if (meant.size() == 1) return Describe(meant[0]);
  return absl::NotFoundError(meant.empty()
                                 ? absl::StrCat("there is no node, job, group or actor ", what)
                                 : absl::StrCat(what, " is there in several jobs: ", absl::StrJoin(meant, ", ")));
}

}  // namespace manta::controller::core
