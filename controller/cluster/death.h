// How the end of an actor is told: statuses that name who died, how, where, and its last lines. Thread-safe.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "manta/v1/node.pb.h"

namespace manta::controller {

struct ActorIdentity {
  std::string actor_id;
  int rank = 0;
  std::string node;
  int64_t pid = 0;
};

// UNAVAILABLE, WORKER_DIED: "train-1 (pid 123 on node-0) was killed by signal 9 (Killed)".
absl::Status ActorDied(const ActorIdentity& actor, const v1::ActorExited& exited);

// UNAVAILABLE, NODE_LOST. `last_lines`: of the agent's own log, where it can be read.
absl::Status NodeLost(const std::string& node, const std::string& reason, const std::vector<std::string>& last_lines);

// DEADLINE_EXCEEDED, WORKER_DIED: it sends no beats, though its process has not been seen to end.
absl::Status ActorSilent(const ActorIdentity& actor, absl::Duration silence);

// INVALID_ARGUMENT or NOT_FOUND in spirit, but of the job's making: UNAVAILABLE, WORKER_DIED.
absl::Status ActorNotStarted(const ActorIdentity& actor, const std::string& message);

}  // namespace manta::controller
