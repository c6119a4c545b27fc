#include "common/actor/group_handle.h"

#include <mutex>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "common/base/status.h"
#include "common/call/core/outcome.h"

namespace manta::actor {
namespace {

struct GroupCall {
  std::mutex mu;
  std::vector<std::shared_ptr<CallCanceller>> calls;
  std::vector<std::string> results;
  absl::Status failure;
  size_t left = 0;
  absl::Notification done;
};

absl::Status OfRank(const absl::Status& status, int rank) {
  v1::ErrorInfo info = GetErrorInfo(status);
  info.set_rank(rank);
  return WithErrorInfo(Annotate(status, absl::StrCat("rank ", rank)), info);
}

}  // namespace

absl::Status GroupHandle::WrongNumber(size_t arguments) const {
  return call::NotStarted(
      absl::InvalidArgumentError(absl::StrCat(arguments, " arguments for a group of ", ranks_.size(), " ranks")));
}

absl::StatusOr<std::vector<std::string>> GroupHandle::CallBytes(const std::string& method,
                                                                std::vector<std::string> arguments,
                                                                const CallOptions& options) const {
  const bool broadcast = arguments.size() == 1;
  if (ranks_.empty() || (!broadcast && arguments.size() != ranks_.size())) return WrongNumber(arguments.size());
  auto group = std::make_shared<GroupCall>();
  group->left = ranks_.size();
  group->results.resize(ranks_.size());
  group->calls.resize(ranks_.size());
  for (size_t i = 0; i < ranks_.size(); ++i) {
    auto call = ranks_[i].StartBytes(method, broadcast ? arguments[0] : std::move(arguments[i]), options,
                                     [group, i](absl::StatusOr<std::string> reply) {
                                       std::vector<std::shared_ptr<CallCanceller>> cancel;
                                       bool last = false;
                                       {
                                         std::lock_guard lock(group->mu);
                                         if (reply.ok()) {
                                           group->results[i] = std::move(*reply);
                                         } else if (group->failure.ok()) {
                                           group->failure = OfRank(reply.status(), static_cast<int>(i));
                                           cancel = group->calls;
                                         }
                                         last = --group->left == 0;
                                       }
                                       for (const auto& other : cancel) {
                                         if (other != nullptr) other->Cancel();
                                       }
                                       if (last) group->done.Notify();
                                     });
    bool failed = false;
    {
      std::lock_guard lock(group->mu);
      group->calls[i] = call;
      failed = !group->failure.ok();
    }
    if (failed) call->Cancel();
  }
  group->done.WaitForNotification();  // every call has a deadline
  std::lock_guard lock(group->mu);
  group->calls.clear();
  if (!group->failure.ok()) return group->failure;
  return std::move(group->results);
}

}  // namespace manta::actor
