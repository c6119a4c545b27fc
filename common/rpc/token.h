// The job token: a secret that every process of a job has, in a file that only its owner can read. Who cannot show it
// is answered UNAUTHENTICATED by every server (server.h). What such a file holds may also be a token of one role with
// the digests of the others (keys.h). Thread-safe.
#pragma once

#include <sys/stat.h>

#include <filesystem>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace manta::rpc {

// Writes 32 random bytes in hexadecimal to `path` (mode 0600; an existing file is replaced) and returns them.
[[nodiscard]] absl::StatusOr<std::string> CreateTokenFile(const std::filesystem::path& path);

// Writes `line` to `path` (mode 0600; an existing file is replaced by a new one: it might be readable by others).
[[nodiscard]] absl::Status WriteSecretFile(const std::filesystem::path& path, absl::string_view line);

// Whether nobody but the file's owner can read it. Of root's files the group may: that is how a container platform
// mounts secrets for a process that is not root.
bool IsPrivate(const struct stat& file);

// INVALID_ARGUMENT where others can read the file, or where it holds no token.
[[nodiscard]] absl::StatusOr<std::string> ReadTokenFile(const std::filesystem::path& path);

// Takes as long whether the first byte differs or the last.
bool TokensEqual(absl::string_view a, absl::string_view b);

}  // namespace manta::rpc
