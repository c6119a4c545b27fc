// `manta run` and `manta eval`: from a configuration to the end of its run. `manta status`: what a run does now.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/config/run_config.h"

namespace manta::cli {

struct RunOptions {
  std::string config;
  std::vector<std::string> overrides;
  std::string on_controller_loss;  // "wait" or "stop"; empty: as the configuration has it
  bool check_only = false;    // look at everything that would be read, start nothing
  bool print_config = false;  // print the resolved configuration, start nothing
  bool must_be_eval = false;
  std::string command_line;
};

// How a run of a user's own programs ended, with the exit code of the one that ended it as its own (common/base/status.h:
// ExitCode). Other runs' statuses come back as they are.
absl::Status WithProgramsExitCode(const config::RunConfig& run, absl::Status status);

// Returns the exit code: 0 done, 1 failed or interrupted, 64 the configuration or something that it names is wrong,
// 69 a process died.
int Run(const RunOptions& options);

// `dir`: see actor::FindClusterFolder.
int Status(const std::string& dir, bool json);

}  // namespace manta::cli
