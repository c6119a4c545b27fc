// Starting ranks: ports leased first where they are asked for, then a command an agent.
#include <bit>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "controller/core/core_impl.h"

namespace manta::controller::core {

void Core::Impl::LeasePorts(Group& group) {
  SetState(group, GroupState::kLeasing);
  for (int i = 0; i < static_cast<int>(group.ranks.size()); ++i) {
    const uint64_t id = NextToken();
    port_leases_[id] = {group.key, group.epoch, i};
    v1::NodeCommand command;
    command.mutable_lease_ports()->set_id(id);
    command.mutable_lease_ports()->set_count(group.request.ports_per_rank());
    command.mutable_lease_ports()->mutable_owner()->set_actor_id(ActorId(group.key, i));
    command.mutable_lease_ports()->mutable_owner()->set_epoch(group.ranks[i].epoch);
    Command(group.ranks[i].place.node, std::move(command));
  }
  const absl::Duration deadline = absl::Milliseconds(group.request.start_deadline_ms());
  AfterFor(group, deadline, [epoch = group.epoch](Impl& impl, Group& late) {
    std::erase_if(impl.port_leases_,
                  [&](const auto& lease) { return lease.second.key == late.key && lease.second.epoch == epoch; });
    if (late.epoch != epoch || late.state != GroupState::kLeasing) return;
    impl.GiveUp(late, absl::DeadlineExceededError(
                          absl::StrCat("group ", GroupName(late.key), ": no ports were leased in time")));
  });
}

void Core::Impl::PortsLeased(const v1::PortsLeased& leased) {
  const auto found = port_leases_.find(leased.id());
  if (found == port_leases_.end()) return;
  const PortsWanted wanted = found->second;
  port_leases_.erase(found);
  Group* group = Find(wanted.key);
  if (group == nullptr || group->epoch != wanted.epoch || group->state != GroupState::kLeasing) return;
  if (!leased.error().empty() || leased.ports_size() < group->request.ports_per_rank()) {
    return GiveUp(
        *group, absl::UnavailableError(absl::StrCat(ActorId(wanted.key, wanted.rank), ": no ports: ", leased.error())));
  }
  group->ranks[wanted.rank].ports.assign(leased.ports().begin(), leased.ports().end());
  for (const Actor& rank : group->ranks) {
    if (rank.ports.empty()) return;
  }
  SaveGroup(*group);
  StartRanks(*group);
}

void Core::Impl::StartRanks(Group& group) {
  SetState(group, GroupState::kStarting);
  for (int i = 0; i < static_cast<int>(group.ranks.size()); ++i) StartRank(group, i);
}

void Core::Impl::StartRank(Group& group, int i) {
  Actor& rank = group.ranks[i];
  rank.phase = ActorPhase::kStarting;
  rank.start_until = loop_.Now() + absl::Milliseconds(group.request.start_deadline_ms());
  Command(rank.place.node, StartCommand(group, i));
  GroupChanged(group);
}

v1::NodeCommand Core::Impl::StartCommand(const Group& group, int i) const {
  const Actor& rank = group.ranks[i];
  const v1::GroupRequest& request = group.request;
  const v1::PlacementRequest& placement = placements_.at(group.placement).request;
  const v1::Bundle& bundle = scheduler::BundleOf(placement, i);
  const std::string actor_id = ActorId(group.key, i);
  v1::NodeCommand command;
  v1::StartActor& start = *command.mutable_start();
  start.set_actor_id(actor_id);
  start.set_epoch(rank.epoch);
  start.set_executable(request.executable());
  for (const std::string& arg : request.args()) start.add_args(arg);
  *start.mutable_env() = request.env();
  *start.mutable_env_allow() = request.env_allow();
  start.set_log_path(absl::StrCat(RunDir(group.key.job), "/logs/", group.key.role, "-", i, ".log"));
  for (uint64_t left = rank.place.gpus; left != 0; left &= left - 1) start.add_gpu_indices(std::countr_zero(left));
  const Node& node = *nodes_[rank.place.node];
  if (bundle.gpus() == 0 && !bundle.gpu_slot().empty() && node.hello.gpus_size() > 0) {
    start.add_gpu_indices(node.hello.gpus(i % node.hello.gpus_size()).index());  // looks on
  }
  start.set_cpu_slots(bundle.cpu_slots());
  *start.mutable_limits() = request.limits();
  if (start.limits().memory_bytes() == 0 && bundle.memory_bytes() > 0) {
    start.mutable_limits()->set_memory_bytes(bundle.memory_bytes());
  }
  start.set_prefork(request.prefork());
  start.set_plain(request.plain());
  for (int32_t port : rank.ports) start.add_ports(port);
  if (!request.torchrun()) return command;
  start.set_world_size(static_cast<int32_t>(group.ranks.size()));
  start.set_rank(i);
  std::set<NodeId> before;
  for (int other = 0; other < static_cast<int>(group.ranks.size()); ++other) {
    const NodeId where = group.ranks[other].place.node;
    if (where == rank.place.node) {
      if (other < i) start.set_local_rank(start.local_rank() + 1);
      start.set_local_world_size(start.local_world_size() + 1);
    } else if (other < i) {
      before.insert(where);
    }
  }
  start.set_node_rank(static_cast<int32_t>(before.size()));
  const Actor& first = group.ranks[0];
  const v1::NodeHello& first_node = nodes_[first.place.node]->hello;
  start.set_master(absl::StrCat(first_node.address().empty() ? "127.0.0.1" : first_node.address(), ":",
                                first.ports.empty() ? 0 : first.ports[0]));
  return command;
}

}  // namespace manta::controller::core
