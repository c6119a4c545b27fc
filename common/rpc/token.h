// The job token: a secret that every process of a job shares, in a file that only its owner can read. Who cannot show
// it is answered UNAUTHENTICATED by every server (server.h). Thread-safe.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace manta::rpc {

// Writes 32 random bytes in hexadecimal to `path` (mode 0600; an existing file is replaced) and returns them.
[[nodiscard]] absl::StatusOr<std::string> CreateTokenFile(const std::filesystem::path& path);

// INVALID_ARGUMENT where others can read the file, or where it holds no token.
[[nodiscard]] absl::StatusOr<std::string> ReadTokenFile(const std::filesystem::path& path);

// Takes as long whether the first byte differs or the last.
bool TokensEqual(std::string_view a, std::string_view b);

}  // namespace manta::rpc
