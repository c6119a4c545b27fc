// The controller's process: one run from its start to its end.
//
// It serves NodeService and ActorRegistry to agents and workers and ControllerService to the command line, runs the
// algorithm on its loop, and stops everything that it has started, whatever the reason: the algorithm has returned, a
// group has failed, StopRun, SIGINT or SIGTERM, or the process that started it (`manta run`) is gone. After a request
// to stop, the actors are ended at once, and the algorithm has a moment to return.
//
// Its log is its stderr, which `manta run` writes to logs/controller.log. On stdout it says "listening 127.0.0.1:PORT"
// once it can be called.
#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/task.h"
#include "controller/cluster/run_context.h"

namespace manta::controller {

struct ControllerOptions {
  std::filesystem::path run_dir;
  std::filesystem::path config_path;  // the resolved configuration
  std::filesystem::path bin_dir;      // where the workers' executables lie
  std::filesystem::path token_file;
  std::string listen = "127.0.0.1:0";
  int parent_pid = 0;  // 0: none
  int expected_nodes = 1;
  absl::Duration node_timeout = absl::Seconds(8);    // see Cluster::Options
  absl::Duration actor_timeout = absl::Seconds(10);
};

using Algorithm = std::function<Task<absl::StatusOr<RunOutcome>>(RunContext)>;

// Call it from main before any thread is started (it blocks SIGINT and SIGTERM). Returns how the run ended.
absl::Status RunController(ControllerOptions options, Algorithm algorithm);

// manta-controller with this algorithm: its flags, RunController, and the process's exit code.
int ControllerMain(int argc, char** argv, Algorithm algorithm);

}  // namespace manta::controller
