// Starting processes by argv, and learning how they end.
//
//   MANTA_ASSIGN_OR_RETURN(Process child, Process::Spawn({.executable = path, .args = {"--listen", "127.0.0.1:0"},
//                                                         .stdout_fd = pipe_write_end, .new_process_group = true}));
//   loop.WatchReadable(child.pidfd(), [&] { auto exit = child.TryWait(); ... });
//
// No shell is involved. The child has stdin from /dev/null, no descriptor but those named, an empty signal mask and
// default signal handlers. Between fork and exec it makes system calls only, so a process with threads (gRPC's) may
// spawn.
//
// A Process is a handle: destroying it neither ends nor reaps the child. One thread at a time.
#pragma once

#include <sys/resource.h>
#include <sys/types.h>

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace manta {

struct ExitStatus {
  int code = -1;   // -1 where a signal ended it
  int signal = 0;  // 0 where none did
  // "exited with code 3", "was killed by signal 9 (Killed)".
  std::string ToString() const;
};

struct ProcessSpec {
  std::string executable;                       // a path, not looked for in PATH
  std::vector<std::string> args;                // without argv[0]
  std::string argv0 = {};                       // what `ps` shows first; empty: the executable
  std::map<std::string, std::string> env = {};  // set on top of this process's environment
  bool only_env = false;                        // `env` is all there is
  std::string working_dir = {};                 // empty: this process's own
  int stdout_fd = -1;                           // -1: this process's own
  int stderr_fd = -1;
  int pass_fd = -1;      // becomes descriptor 3
  int death_signal = 0;  // sent to the child when the thread that spawned it ends (PR_SET_PDEATHSIG)
  bool new_process_group = false;
  bool new_session = false;  // implies a new process group
  struct Limit {
    int resource;  // RLIMIT_...
    rlim_t value;  // soft and hard
  };
  std::vector<Limit> limits = {};
  std::vector<int> cgroup_fds = {};  // cgroup.procs files that the child writes itself into
};

class Process {
 public:
  // NOT_FOUND, PERMISSION_DENIED, ... "cannot execute /a/b: No such file or directory" where exec failed, or "cannot
  // work in /a: ..." where the working folder is not there.
  [[nodiscard]] static absl::StatusOr<Process> Spawn(const ProcessSpec& spec);
  // A child that came to be otherwise: by a fork, or because its own parent has gone. Takes the descriptor.
  static Process FromChild(pid_t pid, int pidfd) { return Process(pid, pidfd); }
  Process(Process&& other) noexcept
      : pid_(std::exchange(other.pid_, -1)), pidfd_(std::exchange(other.pidfd_, -1)), exit_(other.exit_) {}
  Process& operator=(Process&& other) noexcept {
    std::swap(pid_, other.pid_);
    std::swap(pidfd_, other.pidfd_);
    std::swap(exit_, other.exit_);
    return *this;
  }
  ~Process();

  pid_t pid() const { return pid_; }
  // Readable when the child has ended; valid for as long as this handle.
  int pidfd() const { return pidfd_; }

  // Reaps the child if it has ended. Once it has, always the same answer.
  std::optional<ExitStatus> TryWait();
  // Waits for up to `timeout`.
  std::optional<ExitStatus> WaitFor(absl::Duration timeout);
  // False where it has ended already. Never reaches another process that got the same number later.
  bool Signal(int signal);

 private:
  Process(pid_t pid, int pidfd) : pid_(pid), pidfd_(pidfd) {}
  pid_t pid_ = -1;
  int pidfd_ = -1;
  std::optional<ExitStatus> exit_;
};

}  // namespace manta
