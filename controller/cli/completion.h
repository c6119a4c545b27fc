// Shell completion, made from the command line's own definition, so that it cannot fall behind it.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace CLI {
class App;
}

namespace manta::cli {

// The script for `shell`: bash, zsh or fish. INVALID_ARGUMENT for another.
[[nodiscard]] absl::StatusOr<std::string> CompletionScript(const CLI::App& app, const std::string& shell);

}  // namespace manta::cli
