// Changes to a configuration given on the command line.
//
//   a.b=c     sets a value (a list's element by its number: policy.scheduler.0.name=...)
//   +a.b=c    the same; in other tools the plus is needed for a key that the file lacks
//   ~a.b      deletes a key, which must be there
//
// The value is YAML: 3, null, [1, 2], {x: 1}, "text". A map merges into the map that is there. Keys are checked later,
// with everything else. Thread-safe.
#pragma once

#include <string_view>

#include "absl/status/status.h"
#include "common/config/node.h"

namespace manta::config {

// INVALID_ARGUMENT that quotes `text` where it is not understood.
[[nodiscard]] absl::Status ApplyOverride(std::string_view text, Node& root);

}  // namespace manta::config
