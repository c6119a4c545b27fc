// The folder of a run: logger.log_dir/exp_NNN, the next free number, with `latest` beside it pointing at the newest.
#pragma once

#include <filesystem>
#include <string>

#include "absl/status/statusor.h"
#include "common/config/run_config.h"
#include "common/config/tree.h"

namespace manta::cli {

// Makes the folder with logs/ in it and moves the link. Two runs that start at once get different numbers.
[[nodiscard]] absl::StatusOr<std::filesystem::path> MakeRunDir(const std::filesystem::path& log_dir);

// Writes config.resolved.yaml: the configuration with every default, under a comment with the version, the command line,
// the seed and how tokens are sampled. It can be run again as it is. Returns its path.
[[nodiscard]] absl::StatusOr<std::filesystem::path> WriteResolvedConfig(const std::filesystem::path& run_dir,
                                                                        const config::Tree& tree,
                                                                        const config::RunConfig& run,
                                                                        const std::string& command_line);

// The address of the run's controller, for who looks for it there (actor::ReadHeadAddress).
[[nodiscard]] absl::Status WriteControllerAddress(const std::filesystem::path& run_dir, const std::string& address);

}  // namespace manta::cli
