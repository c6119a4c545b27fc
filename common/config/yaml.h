// Reads YAML text into Nodes: one document, every node with its file and line.
//
// Stricter than yaml-cpp, which takes duplicate keys in silence: those are errors, and so are keys that are not
// scalars, a second document, nesting beyond 100 levels and aliases that unfold into more than 50,000 nodes. Merge keys
// (`<<`) are understood. Thread-safe.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "common/config/node.h"

namespace manta::config {

// INVALID_ARGUMENT "NAME:LINE: what is wrong". An empty text is a null node.
[[nodiscard]] absl::StatusOr<Node> ParseYaml(std::string_view text, std::string_view name);

// Also NOT_FOUND where there is no such file, INVALID_ARGUMENT above 16 MiB.
[[nodiscard]] absl::StatusOr<Node> ReadYaml(const std::filesystem::path& path);

}  // namespace manta::config
