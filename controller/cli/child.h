// A process of the run that `manta` has started: its log, its first line, its end.
//
// The child has a process group of its own, so that Ctrl-C in a terminal reaches `manta` alone, which then ends the
// run in order. Its stderr goes to a file; of its stdout the first line is taken ("listening 127.0.0.1:PORT") and the
// rest dropped. Belongs to the loop's thread.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/event_loop.h"
#include "common/base/task.h"
#include "controller/node/process.h"

namespace manta::cli {

class Child {
 public:
  // NOT_FOUND "cannot execute ...". `name` is what people call it: "manta-controller".
  [[nodiscard]] static absl::StatusOr<std::unique_ptr<Child>> Start(EventLoop& loop, std::string name,
                                                                    const std::filesystem::path& executable,
                                                                    std::vector<std::string> args,
                                                                    const std::filesystem::path& log);
  // Kills the child if it still runs.
  ~Child();

  // The address in its "listening" line. UNAVAILABLE with its last lines where it ends before, or where the deadline
  // passes.
  Task<absl::StatusOr<std::string>> Address(absl::Duration deadline);
  // Whether it has ended within `timeout`.
  Task<bool> WaitEnded(absl::Duration timeout);

  bool ended() const { return ended_.is_set(); }
  // It has ended, and by a signal: not of its own will.
  bool killed() const { return exit_.has_value() && exit_->signal != 0; }
  void Signal(int signal) { process_.Signal(signal); }
  // "manta-controller was killed by signal 9 (Killed); its last lines (logs/controller.log): ..." as UNAVAILABLE.
  absl::Status DeathStatus() const;
  const std::string& name() const { return name_; }

 private:
  Child(EventLoop& loop, std::string name, Process process, int stdout_fd, std::filesystem::path log);
  void OnStdout();

  EventLoop& loop_;
  const std::string name_;
  Process process_;
  int stdout_fd_;
  const std::filesystem::path log_;
  std::string line_;
  OneShot<bool> first_line_;  // or the end
  OneShot<bool> ended_;
  std::optional<ExitStatus> exit_;
};

// The last lines of a log file, oldest first.
std::vector<std::string> LastLines(const std::filesystem::path& path, size_t count);

// The folder that this executable lies in.
std::filesystem::path BinDir();

}  // namespace manta::cli
