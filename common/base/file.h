// Whole-file reads and crash-safe writes. All functions are thread-safe; errors name the path and what the system said.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace manta {

// NOT_FOUND where there is no such file; INVALID_ARGUMENT where it is larger than `max_bytes`.
[[nodiscard]] absl::StatusOr<std::string> ReadFile(const std::filesystem::path& path,
                                                   uint64_t max_bytes = uint64_t{1} << 32);

// Replaces `path` atomically: a temporary name beside it, fsync, rename, fsync of the folder. After a crash either the
// old or the new content is there, never a part.
[[nodiscard]] absl::Status WriteFileAtomically(const std::filesystem::path& path, std::string_view content);

// fsync of a folder, so that a rename in it survives power loss.
[[nodiscard]] absl::Status SyncDirectory(const std::filesystem::path& path);

// "cannot open /a/b: No such file or directory" with the code that fits errno.
[[nodiscard]] absl::Status ErrnoError(std::string_view what, const std::filesystem::path& path, int error);

}  // namespace manta
