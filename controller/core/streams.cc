// Logs and stacks: asked of agents, handed on as they come. They wait for nothing durable.
#include "absl/strings/str_cat.h"
#include "controller/core/core_impl.h"

namespace manta::controller::core {

Subscription Core::Impl::ReadLog(const std::string& actor_id, int64_t offset, int64_t max_bytes, bool follow,
                                 std::function<void(absl::StatusOr<v1::LogChunk>)> sink) {
  const auto actor = ParseActorId(actor_id);
  const Group* group = actor.has_value() ? Find(actor->first) : nullptr;
  const bool known = group != nullptr && actor->second < static_cast<int>(group->ranks.size());
  Node* node = known ? nodes_[group->ranks[actor->second].place.node].get() : nullptr;
  if (node == nullptr || node->port == nullptr) {
    const absl::Status status = known
                                    ? absl::UnavailableError(absl::StrCat("the agent of ", actor_id, "'s node is away"))
                                    : absl::NotFoundError(absl::StrCat("there is no actor ", actor_id));
    loop_.Post([sink = std::move(sink), status] { sink(status); });
    return Subscription();
  }
  const uint64_t id = NextToken();
  logs_[id] = {node->id, std::make_shared<std::function<void(absl::StatusOr<v1::LogChunk>)>>(std::move(sink))};
  v1::NodeCommand command;
  v1::ReadLog& read = *command.mutable_read_log();
  read.set_id(id);
  read.set_actor_id(actor_id);
  read.set_offset(offset);
  read.set_max_bytes(max_bytes);
  read.set_follow(follow);
  node->port->Send(command);
  return Subscription([self = self_, id] {
    if (*self == nullptr) return;
    Impl& impl = **self;
    const auto found = impl.logs_.find(id);
    if (found == impl.logs_.end()) return;
    Node* from = impl.nodes_[found->second.node].get();
    impl.logs_.erase(found);
    if (from == nullptr || from->port == nullptr) return;
    v1::NodeCommand cancel;
    cancel.mutable_read_log()->set_id(id);
    cancel.mutable_read_log()->set_cancel(true);
    from->port->Send(cancel);
  });
}

void Core::Impl::OnLogChunk(const v1::LogChunk& chunk) {
  const auto found = logs_.find(chunk.id());
  if (found == logs_.end()) return;
  const auto sink = found->second.sink;
  if (chunk.end()) logs_.erase(found);
  (*sink)(chunk);
}

void Core::Impl::EndLogsOf(NodeId node, const absl::Status& why) {
  for (auto it = logs_.begin(); it != logs_.end();) {
    if (it->second.node != node) {
      ++it;
      continue;
    }
    loop_.Post([sink = it->second.sink, why] { (*sink)(why); });
    it = logs_.erase(it);
  }
}

void Core::Impl::Stacks(const v1::ListRequest& which, absl::Duration patience,
                        std::function<void(const v1::StackDump&)> sink, absl::AnyInvocable<void(absl::Status)> done) {
  StackAsker asker{.open = {}, .sink = std::move(sink), .done = std::move(done)};
  v1::WorkerOrder order;
  order.mutable_stacks()->set_reason("asked for");
  for (const auto& [key, group] : groups_) {
    if ((!which.job().empty() && key.job != which.job()) || (!which.role().empty() && key.role != which.role()))
      continue;
    for (int i = 0; i < static_cast<int>(group->ranks.size()); ++i) {
      if (!group->ranks[i].may_run()) continue;
      asker.open.emplace(ActorId(key, i), group->ranks[i].epoch);
      SendWorkerOrder(*group, i, order);
    }
  }
  if (asker.open.empty()) {
    const absl::Status nobody =
        absl::NotFoundError(absl::StrCat("no actor", which.role().empty() ? "" : absl::StrCat(" ", which.role()),
                                         which.job().empty() ? "" : absl::StrCat(" of job ", which.job()), " runs"));
    auto answer = std::make_shared<absl::AnyInvocable<void(absl::Status)>>(std::move(asker.done));
    loop_.Post([answer, nobody] { (*answer)(nobody); });
    return;
  }
  const uint64_t id = next_listener_++;
  stack_askers_.emplace(id, std::move(asker));
  After(patience, [id, patience](Impl& impl) { impl.EndStacks(id, patience); });
}

void Core::Impl::OnStacks(const v1::StackDump& dump) {
  for (auto& [id, asker] : stack_askers_) {
    if (asker.open.erase({dump.actor().actor_id(), dump.actor().epoch()}) == 0) continue;
    asker.sink(dump);
    if (!asker.open.empty()) continue;
    After(absl::ZeroDuration(), [id = id](Impl& impl) { impl.EndStacks(id, absl::ZeroDuration()); });
  }
}

void Core::Impl::EndStacks(uint64_t id, absl::Duration patience) {
  const auto found = stack_askers_.find(id);
  if (found == stack_askers_.end()) return;  // all had answered in time
  StackAsker asker = std::move(found->second);
  stack_askers_.erase(found);
  for (const auto& [actor_id, epoch] : asker.open) {
    v1::StackDump dump;
    dump.mutable_actor()->set_actor_id(actor_id);
    dump.mutable_actor()->set_epoch(epoch);
    dump.set_text(absl::StrCat("its agent has not answered within ", absl::FormatDuration(patience), "\n"));
    asker.sink(dump);
  }
  asker.done(absl::OkStatus());
}

}  // namespace manta::controller::core
