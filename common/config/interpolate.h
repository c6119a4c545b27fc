// Interpolation in a configuration tree, after all merging: `${a.b}` from the root, `${.a}` beside the value that says
// it, `${..a}` beside its parent and so on, `${mul:x,y}` and the other functions, nested and inside text.
//
// A value that is one interpolation and nothing else takes over the target's type, be it a number or a whole map; within
// text the target must be a scalar. `\${` is a literal `${`. Relative paths in a map that is itself interpolated refer to
// where that map was written. Functions: mul, add, sub, div, max, min (of two or more numbers).
//
// A map with `enabled: false` is not used: what cannot be resolved inside it is left as it is. Thread-safe.
#pragma once

#include "absl/status/statusor.h"
#include "common/config/node.h"

namespace manta::config {

// INVALID_ARGUMENT with file:line for a missing target, a cycle, an unknown function, bad syntax, or a result that is
// too large.
[[nodiscard]] absl::StatusOr<Node> Interpolate(const Node& root);

}  // namespace manta::config
