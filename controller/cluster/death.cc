#include "controller/cluster/death.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"

namespace manta::controller {
namespace {

std::string Name(const ActorIdentity& actor) {
  return absl::StrCat(actor.actor_id, " (pid ", actor.pid, " on ", actor.node, ")");
}

v1::ErrorInfo Info(v1::Origin origin, const ActorIdentity& actor) {
  v1::ErrorInfo info;
  info.set_origin(origin);
  info.set_outcome(v1::CALL_OUTCOME_UNKNOWN);
  info.set_actor(actor.actor_id);
  info.set_rank(actor.rank);
  info.set_node(actor.node);
  info.set_exit_code(-1);
  return info;
}

}  // namespace

absl::Status ActorDied(const ActorIdentity& actor, const v1::ActorExited& exited) {
  v1::ErrorInfo info = Info(v1::ORIGIN_WORKER_DIED, actor);
  info.set_exit_code(exited.exit_code());
  info.set_exit_signal(exited.exit_signal());
  *info.mutable_last_lines() = exited.last_lines();
  const std::string how = exited.exit_signal() != 0 ? absl::StrCat("was killed by signal ", exited.exit_signal(), " (",
                                                                   strsignal(exited.exit_signal()), ")")
                                                    : absl::StrCat("exited with code ", exited.exit_code());
  return WithErrorInfo(absl::UnavailableError(absl::StrCat(Name(actor), " ", how)), info);
}

absl::Status NodeLost(const std::string& node, const std::string& reason, const std::vector<std::string>& last_lines) {
  ActorIdentity nobody;
  nobody.rank = -1;
  nobody.node = node;
  v1::ErrorInfo info = Info(v1::ORIGIN_NODE_LOST, nobody);
  for (const std::string& line : last_lines) info.add_last_lines(line);
  return WithErrorInfo(absl::UnavailableError(absl::StrCat("the node agent of ", node, " is lost: ", reason)), info);
}

absl::Status ActorSilent(const ActorIdentity& actor, absl::Duration silence) {
  return WithErrorInfo(absl::DeadlineExceededError(absl::StrCat(
                           Name(actor), " has not been heard of for ",
                           absl::FormatDuration(absl::Trunc(silence, absl::Seconds(1))), ": it hangs, or is stopped")),
                       Info(v1::ORIGIN_WORKER_DIED, actor));
}

absl::Status ActorNotStarted(const ActorIdentity& actor, const std::string& message) {
  return WithErrorInfo(
      absl::UnavailableError(absl::StrCat(actor.actor_id, " did not start on ", actor.node, ": ", message)),
      Info(v1::ORIGIN_WORKER_DIED, actor));
}

}  // namespace manta::controller
