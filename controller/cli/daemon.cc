#include "controller/cli/daemon.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/file.h"
#include "common/base/status.h"
#include "controller/cli/child.h"
#include "controller/node/process.h"

namespace manta::cli {
namespace {

// The first line of a pipe; what came where it ended or the time was up.
std::string ReadLine(int fd, absl::Duration wait) {
  const absl::Time deadline = absl::Now() + wait;
  std::string line;
  while (true) {
    pollfd poll_fd{.fd = fd, .events = POLLIN, .revents = 0};
    const int64_t left = absl::ToInt64Milliseconds(deadline - absl::Now());
    if (left <= 0 || poll(&poll_fd, 1, static_cast<int>(left)) <= 0) return line;
    char buffer[256];
    const ssize_t n = read(fd, buffer, sizeof(buffer));
    if (n <= 0) return line;
    line.append(buffer, static_cast<size_t>(n));
    if (const size_t end = line.find('\n'); end != std::string::npos) return line.substr(0, end + 1);
  }
}

// Its exit codes keep their meaning: 64 for what was given, 1 for what is refused, 69 else.
absl::Status Died(const DaemonSpec& spec, const ExitStatus& exit) {
  v1::ErrorInfo info;
  info.set_actor(spec.name);
  info.set_rank(-1);
  info.set_exit_code(exit.code);
  info.set_exit_signal(exit.signal);
  for (const std::string& line : LastLines(spec.log, 5)) info.add_last_lines(line);
  const std::string message =
      absl::StrCat("cannot start ", spec.name, ": it ", exit.ToString(), " (its log is ", spec.log.string(), ")");
  info.set_origin(exit.code == 64 ? v1::ORIGIN_USER : exit.code == 1 ? v1::ORIGIN_INTERNAL : v1::ORIGIN_WORKER_DIED);
  return WithErrorInfo(exit.code == 64  ? absl::InvalidArgumentError(message)
                       : exit.code == 1 ? absl::FailedPreconditionError(message)
                                        : absl::UnavailableError(message),
                       info);
}

}  // namespace

absl::StatusOr<Daemon> StartDaemon(const DaemonSpec& spec, absl::Duration wait) {
  const int log = open(spec.log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (log < 0) return ErrnoError("open", spec.log, errno);
  const absl::Cleanup close_log = [log] { close(log); };
  int out[2];
  if (pipe2(out, O_CLOEXEC) != 0) return ErrnoError("make a pipe for", spec.executable, errno);
  const absl::Cleanup close_pipe = [&] { close(out[0]); };
  absl::StatusOr<Process> process = Process::Spawn({.executable = spec.executable.string(),
                                                    .args = spec.args,
                                                    .stdout_fd = wait > absl::ZeroDuration() ? out[1] : log,
                                                    .stderr_fd = log,
                                                    .new_session = true});
  close(out[1]);
  if (!process.ok()) return process.status();
  if (!spec.pid_file.empty())
    MANTA_RETURN_IF_ERROR(WriteFileAtomically(spec.pid_file, absl::StrCat(process->pid(), "\n")));
  Daemon daemon{.pid = process->pid(), .first_line = ""};
  if (wait <= absl::ZeroDuration()) return daemon;
  daemon.first_line = ReadLine(out[0], wait);
  if (!daemon.first_line.empty() && daemon.first_line.back() == '\n') {
    daemon.first_line.pop_back();
    return daemon;
  }
  if (const std::optional<ExitStatus> exit = process->WaitFor(absl::Seconds(1)); exit.has_value())
    return Died(spec, *exit);
  process->Signal(SIGKILL);
  process->WaitFor(absl::Seconds(5));
  return absl::DeadlineExceededError(absl::StrCat(spec.name, " said nothing for ", absl::FormatDuration(wait),
                                                  " and was killed (its log is ", spec.log.string(), ")"));
}

pid_t RunningDaemon(const std::filesystem::path& pid_file, const std::string& executable_name) {
  const absl::StatusOr<std::string> text = ReadFile(pid_file, 64);
  int pid = 0;
  if (!text.ok() || !absl::SimpleAtoi(*text, &pid)) return 0;
  // The number may be another process's by now.
  std::error_code error;
  const std::string running =
      std::filesystem::read_symlink(absl::StrCat("/proc/", pid, "/exe"), error).filename().string();
  return !error && running == executable_name ? pid : 0;
}

}  // namespace manta::cli
