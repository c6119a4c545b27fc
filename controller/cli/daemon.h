// A process that outlives the command that starts it: a session of its own, its stderr in a log file, its first line of
// stdout read here.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace manta::cli {

struct DaemonSpec {
  std::string name;  // for people: "manta-controller"
  std::filesystem::path executable;
  std::vector<std::string> args;
  std::filesystem::path log;
  std::filesystem::path pid_file;  // written with its pid; empty: none
};

struct Daemon {
  pid_t pid = 0;
  std::string first_line;  // of its stdout; empty where it was not waited for
};

// Waits for its first line where `wait` is positive. Where it ends before: UNAVAILABLE, with its last lines, and the
// exit code that its own was (1, 64 or 69); where it says nothing in time it is killed.
[[nodiscard]] absl::StatusOr<Daemon> StartDaemon(const DaemonSpec& spec, absl::Duration wait);

// The pid in a pid file if that process runs and is an executable of this name; else 0.
pid_t RunningDaemon(const std::filesystem::path& pid_file, const std::string& executable_name);

}  // namespace manta::cli
