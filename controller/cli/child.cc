#include "controller/cli/child.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/base/file.h"
#include "common/base/status.h"

namespace manta::cli {

namespace fs = std::filesystem;

absl::StatusOr<std::unique_ptr<Child>> Child::Start(EventLoop& loop, std::string name, const fs::path& executable,
                                                    std::vector<std::string> args, const fs::path& log) {
  const int log_fd = open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (log_fd < 0) return ErrnoError("open", log, errno);
  int pipe_fds[2];
  if (pipe2(pipe_fds, O_CLOEXEC | O_NONBLOCK) != 0) {
    const int error = errno;
    close(log_fd);
    return ErrnoError("make a pipe for", executable, error);
  }
  fcntl(pipe_fds[1], F_SETFL, 0);  // the child's end blocks
  absl::StatusOr<Process> process = Process::Spawn({.executable = executable.string(),
                                                    .args = std::move(args),
                                                    .stdout_fd = pipe_fds[1],
                                                    .stderr_fd = log_fd,
                                                    .new_process_group = true});
  close(log_fd);
  close(pipe_fds[1]);
  if (!process.ok()) {
    close(pipe_fds[0]);
    return process.status();
  }
  return std::unique_ptr<Child>(new Child(loop, std::move(name), *std::move(process), pipe_fds[0], log));
}

Child::Child(EventLoop& loop, std::string name, Process process, int stdout_fd, fs::path log)
    : loop_(loop),
      name_(std::move(name)),
      process_(std::move(process)),
      stdout_fd_(stdout_fd),
      log_(std::move(log)),
      first_line_(loop),
      ended_(loop) {
  loop_.WatchReadable(stdout_fd_, [this] { OnStdout(); });
  loop_.WatchReadable(process_.pidfd(), [this] {
    exit_ = process_.TryWait();
    if (!exit_) return;
    loop_.Unwatch(process_.pidfd());
    ended_.Set(true);
    first_line_.Set(false);
  });
}

Child::~Child() {
  if (!ended_.is_set()) {
    loop_.Unwatch(process_.pidfd());
    process_.Signal(SIGKILL);
    process_.WaitFor(absl::Seconds(5));
  }
  if (stdout_fd_ >= 0) {
    loop_.Unwatch(stdout_fd_);
    close(stdout_fd_);
  }
}

void Child::OnStdout() {
  char buffer[4096];
  const ssize_t n = read(stdout_fd_, buffer, sizeof(buffer));
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (n <= 0) {
    loop_.Unwatch(stdout_fd_);
    close(stdout_fd_);
    stdout_fd_ = -1;
    return;
  }
  if (first_line_.is_set()) return;
  line_.append(buffer, static_cast<size_t>(n));
  if (const size_t end = line_.find('\n'); end != std::string::npos) {
    line_.resize(end);
    first_line_.Set(true);
  }
}

Task<absl::StatusOr<std::string>> Child::Address(absl::Duration deadline) {
  const auto timer = loop_.RunAfter(deadline, [first_line = first_line_]() mutable { first_line.Set(false); });
  const bool said = co_await first_line_.Wait();
  loop_.Cancel(timer);
  if (!said) {
    if (ended_.is_set()) co_return DeathStatus();
    co_return absl::UnavailableError(absl::StrCat(name_, " said nothing for ", absl::FormatDuration(deadline)));
  }
  if (!absl::StartsWith(line_, "listening ")) {
    co_return absl::InternalError(absl::StrCat(name_, " said '", line_, "', expected 'listening HOST:PORT'"));
  }
  co_return line_.substr(10);
}

Task<bool> Child::WaitEnded(absl::Duration timeout) {
  if (ended_.is_set()) co_return true;
  OneShot<bool> done(loop_);
  const auto timer = loop_.RunAfter(timeout, [done]() mutable { done.Set(false); });
  // Whichever comes first.
  Spawn(loop_, [](OneShot<bool> ended, OneShot<bool> out) -> Task<bool> {
    const bool value = co_await ended.Wait();
    out.Set(value);
    co_return value;
  }(ended_, done), [](bool) {});
  const bool ended = co_await done.Wait();
  loop_.Cancel(timer);
  co_return ended;
}

absl::Status Child::DeathStatus() const {
  const std::vector<std::string> lines = LastLines(log_, 20);
  v1::ErrorInfo info;
  info.set_origin(v1::ORIGIN_WORKER_DIED);
  info.set_actor(name_);
  info.set_rank(-1);
  info.set_exit_code(exit_ ? exit_->code : -1);
  info.set_exit_signal(exit_ ? exit_->signal : 0);
  for (const std::string& line : lines) info.add_last_lines(line);
  return WithErrorInfo(absl::UnavailableError(absl::StrCat(name_, " ", exit_ ? exit_->ToString() : "has ended", " (its log is ",
                                                           log_.string(), ")")),
                       info);
}

std::vector<std::string> LastLines(const fs::path& path, size_t count) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) return {};
  const std::streamoff size = file.tellg(), begin = std::max<std::streamoff>(0, size - (64 << 10));
  std::string text(static_cast<size_t>(size - begin), '\0');
  file.seekg(begin);
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  std::vector<std::string> lines = absl::StrSplit(text, '\n', absl::SkipEmpty());
  if (begin > 0 && !lines.empty()) lines.erase(lines.begin());
  if (lines.size() > count) lines.erase(lines.begin(), lines.end() - static_cast<ptrdiff_t>(count));
  return lines;
}

fs::path BinDir() {
  std::error_code error;
  const fs::path self = fs::read_symlink("/proc/self/exe", error);
  return error ? fs::path("build/bin") : self.parent_path();
}

}  // namespace manta::cli
