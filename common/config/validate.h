// Checks a loaded configuration against the table of keys. Thread-safe.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/config/tree.h"

namespace manta::config {

// Unknown keys, trees that are no maps, and plain values of the wrong type or out of their range. For a configuration
// whose interpolations are not resolved.
[[nodiscard]] absl::Status ValidateNames(const Node& root);

// INVALID_ARGUMENT, with file:line, for the first unknown key, value of the wrong type or out of its range, or pending
// key that does not have its default; nothing inside a tree with `enabled: false` is looked at. Returns the warnings:
// a line that lists ignored keys, or none.
[[nodiscard]] absl::StatusOr<std::vector<std::string>> ValidateKeys(const Tree& tree);

}  // namespace manta::config
