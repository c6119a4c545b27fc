// What is left of a process that has died: its own children become those of the nearest subreaper, which ends them.
#pragma once

#include <sys/types.h>

#include <functional>

#include "absl/time/time.h"

namespace manta::node {

// Kills and reaps this process's children that `known` does not hold, and theirs, generation after generation, until
// there are none, for up to `limit`. Known ones are neither touched nor reaped.
void EndStrayChildren(const std::function<bool(pid_t)>& known, absl::Duration limit);

}  // namespace manta::node
