// The controller's process: a head (head.h) and the jobs that run on it, from its start to its end.
//
// As `manta run` starts it, it has one job, "run", from its command line, and ends with it. As `manta launch` starts it
// (`cluster`), it has the jobs that are submitted to it, and ends when it is told to. It stops everything that it has
// started, whatever the reason: the algorithm has returned, a group has failed, StopRun, Shutdown, SIGINT or SIGTERM,
// or the process that started it (`manta run`) is gone. After a request to stop, the actors are ended at once, and the
// algorithm has a moment to return.
//
// Killed, it stops nothing: started again in the same folder it finds from its journal what there was, and agents and
// workers come back to it (on_controller_loss: wait). A container platform that moves it elsewhere sends SIGTERM and
// means the same (`leave_on_sigterm`).
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
  std::filesystem::path journal_dir;  // empty: run_dir
  std::string listen = "127.0.0.1:0";
  int parent_pid = 0;  // 0: none
  int expected_nodes = 1;
  bool cluster = false;       // no job of its own
  bool wait_on_loss = false;  // workers outlive this process, for the next one
  bool discard_journal = false;
  bool leave_on_sigterm = false;                   // SIGTERM is as a kill: nothing is stopped, the next one goes on
  std::string probe_listen;                        // HOST:PORT for HTTP probes (rpc/probe_server.h); empty: none
  absl::Duration node_timeout = absl::Seconds(8);  // see CoreOptions
  absl::Duration actor_timeout = absl::Seconds(10);
};

using Algorithm = std::function<Task<absl::StatusOr<RunOutcome>>(RunContext)>;

// Call it from main before any thread is started (it blocks SIGINT and SIGTERM). Returns how the run ended.
absl::Status RunController(ControllerOptions options, Algorithm algorithm);

// manta-controller with this algorithm: its flags, RunController, and the process's exit code.
int ControllerMain(int argc, char** argv, Algorithm algorithm);

}  // namespace manta::controller
