#include "controller/core/records.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace manta::controller::core {

const char* Name(GroupState state) {
  switch (state) {
    case GroupState::kQueued:
      return "QUEUED";
    case GroupState::kLeasing:
      return "LEASING";
    case GroupState::kStarting:
      return "STARTING";
    case GroupState::kReady:
      return "READY";
    case GroupState::kFailed:
      return "FAILED";
    case GroupState::kRestarting:
      return "RESTARTING";
    case GroupState::kBackoff:
      return "BACKOFF";
    case GroupState::kRemoving:
      return "REMOVING";
  }
  return "?";
}

std::string GroupName(const GroupKey& key) {
  return key.job == kOnlyJob ? key.role : absl::StrCat(key.job, "/", key.role);
}

std::string ActorId(const GroupKey& key, int rank) {
  return absl::StrCat(GroupName(key), "-", rank);
}

std::optional<std::pair<GroupKey, int>> ParseActorId(const std::string& actor_id) {
  const size_t dash = actor_id.rfind('-');
  int rank = 0;
  if (dash == std::string::npos || !absl::SimpleAtoi(actor_id.substr(dash + 1), &rank) || rank < 0) return std::nullopt;
  const std::string group = actor_id.substr(0, dash);
  const size_t slash = group.find('/');
  if (slash == std::string::npos) return {{GroupKey{kOnlyJob, group}, rank}};
  return {{GroupKey{group.substr(0, slash), group.substr(slash + 1)}, rank}};
}

}  // namespace manta::controller::core
