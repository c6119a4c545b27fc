// The cluster's end: every group, then the agents.
#include "common/base/status.h"
#include "controller/core/core_impl.h"
#include "spdlog/spdlog.h"

namespace manta::controller::core {

void Core::Impl::Shutdown(absl::Duration grace, std::string reason, Answer<v1::Done> answer) {
  stop_answers_.push_back(std::move(answer));
  if (stopping_) return Changed();
  stopping_ = true;
  spdlog::info("the cluster is stopping: {}", reason);
  stop_grace_ = grace;
  stop_until_ = loop_.Now() + grace + options_.stop_slack;
  const absl::Status cancelled = absl::CancelledError("the cluster is stopping");
  for (auto& [id, placement] : placements_) {
    if (placement.placed) continue;
    queue_.Remove(id);
    for (auto& waiting : std::exchange(placement.answers, {})) Reply<v1::PlacementReply>(std::move(waiting), cancelled);
  }
  for (Group* group : Groups()) BeginRemoval(*group, grace, cancelled);
  After(grace + options_.stop_slack, [](Impl& impl) { impl.Changed(); });
  Changed();
}

void Core::Impl::FinishShutdown() {
  const bool late = loop_.Now() >= stop_until_;
  if (!groups_.empty() && !late) return;
  if (!agents_told_) {
    agents_told_ = true;
    stop_incomplete_ |= !groups_.empty();
    stop_until_ = loop_.Now() + stop_grace_ + options_.stop_slack;
    v1::NodeCommand command;
    command.mutable_shutdown()->set_grace_ms(absl::ToInt64Milliseconds(stop_grace_));
    for (const auto& node : nodes_) {
      if (node != nullptr && node->alive()) Command(node->id, command);
    }
    After(stop_grace_ + options_.stop_slack, [](Impl& impl) { impl.Changed(); });
    if (num_nodes() > 0) return;
  }
  if (num_nodes() > 0 && loop_.Now() < stop_until_) return;
  absl::StatusOr<v1::Done> result = v1::Done();
  if (stop_incomplete_) result = absl::DeadlineExceededError("not every process was reported gone in time");
  for (Answer<v1::Done>& answer : std::exchange(stop_answers_, {})) Reply<v1::Done>(std::move(answer), result);
}

}  // namespace manta::controller::core
