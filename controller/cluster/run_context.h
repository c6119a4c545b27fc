// What an algorithm is given to run with, and what it gives back.
//
//   Task<absl::StatusOr<RunOutcome>> RunAlgorithm(RunContext context);
//
// runs on the controller's loop, starts its groups through the cluster, and returns when the run is over. It needs not
// stop what it has started: whoever called it does. When `stop` is cancelled (Ctrl-C, StopRun, `manta run` gone) it
// returns soon; calls that were given a group's token end by themselves when the groups are stopped.
#pragma once

#include <filesystem>
#include <string>

#include "common/base/event_loop.h"
#include "common/base/task.h"
#include "controller/cluster/job_cluster.h"
#include "controller/cluster/run_events.h"

namespace manta::controller {

class DurableCaller;  // controller/calls

struct RunContext {
  EventLoop* loop;
  JobCluster* cluster;
  RunEvents* events;
  std::filesystem::path run_dir;      // logger.log_dir/exp_NNN; exists
  std::filesystem::path config_path;  // the resolved configuration
  std::filesystem::path bin_dir;      // where manta-train and the other executables lie
  CancelToken stop;
  std::string job;       // its name in the cluster; "run" under `manta run`
  bool resumed = false;  // an earlier controller has begun it: its groups may still be there (JobCluster::Roles)
  DurableCaller* calls = nullptr;  // to actors with methods of their own
};

struct RunOutcome {
  std::string checkpoint;  // the last one written; empty if none
  std::string summary;     // for people: the end's table
};

}  // namespace manta::controller
