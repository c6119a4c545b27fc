// One group of the tree `actors`: a program of the user's own, and how it is placed, started, watched and brought back.
//
// Field names and meanings are those of the YAML keys. Plain values: copy them, read them from any thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace manta::config {

struct ActorGroupConfig {
  std::string role;                     // the tree's name
  std::string executable;               // an absolute path
  std::vector<std::string> args;        // the rest of `command`, then `args`
  std::string working_dir;              // an absolute path
  std::map<std::string, std::string> env;
  std::vector<std::string> env_allow;
  bool plain = false;                   // no actor: reports nothing, and is done when it exits with 0
  int64_t ranks = 1;
  int64_t cpus = 1, gpus = 0;           // a rank
  std::string gpu_slot;
  uint64_t memory_bytes = 0;            // a rank; 0: neither counted nor limited
  std::map<std::string, std::string> labels;
  std::vector<std::string> avoid;
  std::string strategy = "pack";        // pack, spread, strict_pack, strict_spread
  int64_t segment = 0;
  double placement_timeout_s = 30, start_timeout_s = 60, progress_timeout_s = 0;
  struct Restart {
    std::string policy = "fail_job";    // fail_job, restart_group, replace_one
    int64_t max_restarts = 3;           // -1: any number
    double backoff_s = 0.5, backoff_max_s = 60, reset_after_s = 600;
  } restart;
  std::optional<std::string> name;      // empty: JOB/ROLE
  bool detached = false;
  int64_t ports = 0;
  bool torchrun = false, prefork = false;
  uint64_t file_bytes = 0;              // limits.file_size; 0: no limit
  int64_t open_files = 0;               // 0: no limit of its own
};

}  // namespace manta::config
