#include "controller/node/process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/process_info.h"

namespace manta {
namespace {

// What the child does between fork and exec: system calls only, on memory that was laid out before the fork.
struct ChildPlan {
  const char* executable;
  const char* working_dir;  // null: none
  char* const* argv;
  char* const* envp;
  const ProcessSpec* spec;
  pid_t parent;
  int error_fd;
  int null_fd;
};

[[noreturn]] void RunChild(const ChildPlan& plan) {
  bool in_place = true;
  const auto fail = [&] {
    const int error = in_place ? errno : -errno;  // below 0: of the working folder
    [[maybe_unused]] const ssize_t n = write(plan.error_fd, &error, sizeof(error));
    _exit(127);
  };
  for (int s = 1; s < 65; ++s) {
    if (s != SIGKILL && s != SIGSTOP) signal(s, SIG_DFL);
  }
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  if (plan.spec->new_session) {
    setsid();
  } else if (plan.spec->new_process_group) {
    setpgid(0, 0);
  }
  if (plan.spec->death_signal != 0) {
    if (prctl(PR_SET_PDEATHSIG, plan.spec->death_signal) != 0) fail();
    if (getppid() != plan.parent) _exit(127);  // it died before the request was in place
  }
  for (int fd : plan.spec->cgroup_fds) {
    if (write(fd, "0", 1) != 1) fail();  // 0: the process that writes
  }
  for (const ProcessSpec::Limit& limit : plan.spec->limits) {
    const rlimit value{limit.value, limit.value};
    if (setrlimit(static_cast<__rlimit_resource_t>(limit.resource), &value) != 0) fail();
  }
  if (plan.working_dir != nullptr && chdir(plan.working_dir) != 0) {
    in_place = false;
    fail();
  }
  // Each dup2 clears close-on-exec; sources are above the targets (Spawn sees to it).
  if (dup2(plan.null_fd, 0) < 0) fail();
  if (plan.spec->stdout_fd >= 0 && dup2(plan.spec->stdout_fd, 1) < 0) fail();
  if (plan.spec->stderr_fd >= 0 && dup2(plan.spec->stderr_fd, 2) < 0) fail();
  unsigned first_closed = 3;
  if (plan.spec->pass_fd >= 0) {
    if (dup2(plan.spec->pass_fd, 3) < 0) fail();
    first_closed = 4;
  }
  constexpr unsigned kCloseOnExec = 1u << 2;  // CLOSE_RANGE_CLOEXEC
  syscall(SYS_close_range, first_closed, ~0u, kCloseOnExec);
  execve(plan.executable, plan.argv, plan.envp);
  fail();
  _exit(127);
}

std::vector<std::string> Environment(const std::map<std::string, std::string>& set, bool only_set) {
  std::vector<std::string> result;
  for (char** entry = environ; *entry != nullptr && !only_set; ++entry) {
    const std::string_view text(*entry);
    if (set.count(std::string(text.substr(0, text.find('=')))) == 0) result.emplace_back(text);
  }
  for (const auto& [name, value] : set) result.push_back(absl::StrCat(name, "=", value));
  return result;
}

std::vector<char*> Pointers(std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  for (std::string& s : strings) pointers.push_back(s.data());
  pointers.push_back(nullptr);
  return pointers;
}

}  // namespace

std::string ExitStatus::ToString() const {
  if (signal != 0) return absl::StrCat("was killed by signal ", signal, " (", strsignal(signal), ")");
  return absl::StrCat("exited with code ", code);
}

absl::StatusOr<Process> Process::Spawn(const ProcessSpec& spec) {
  std::vector<std::string> argv = {spec.argv0.empty() ? spec.executable : spec.argv0};
  argv.insert(argv.end(), spec.args.begin(), spec.args.end());
  std::vector<std::string> env = Environment(spec.env, spec.only_env);
  std::vector<char*> argv_pointers = Pointers(argv), env_pointers = Pointers(env);

  int error_pipe[2];
  int null_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (null_fd < 0 || pipe2(error_pipe, O_CLOEXEC) != 0) {
    const int error = errno;
    if (null_fd >= 0) close(null_fd);
    return absl::ErrnoToStatus(error, absl::StrCat("no descriptors to start ", spec.executable));
  }
  // Above what the child's dup2 calls overwrite.
  const int error_fd = fcntl(error_pipe[1], F_DUPFD_CLOEXEC, 10);
  ProcessSpec moved;  // the descriptors alone
  moved.death_signal = spec.death_signal;
  moved.new_process_group = spec.new_process_group;
  moved.new_session = spec.new_session;
  moved.limits = spec.limits;
  const auto lift = [](int fd) { return fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 10); };
  close(std::exchange(null_fd, lift(null_fd)));
  moved.stdout_fd = lift(spec.stdout_fd);
  moved.stderr_fd = lift(spec.stderr_fd);
  moved.pass_fd = lift(spec.pass_fd);
  for (int fd : spec.cgroup_fds) moved.cgroup_fds.push_back(lift(fd));
  const ChildPlan plan{spec.executable.c_str(),
                       spec.working_dir.empty() ? nullptr : spec.working_dir.c_str(),
                       argv_pointers.data(),
                       env_pointers.data(),
                       &moved,
                       getpid(),
                       error_fd,
                       null_fd};
  const pid_t pid = fork();
  if (pid == 0) RunChild(plan);
  const int fork_error = errno;
  for (int fd : {null_fd, error_pipe[1], error_fd, moved.stdout_fd, moved.stderr_fd, moved.pass_fd}) {
    if (fd >= 0) close(fd);
  }
  for (int fd : moved.cgroup_fds) close(fd);
  if (pid < 0) {
    close(error_pipe[0]);
    return absl::ErrnoToStatus(fork_error, absl::StrCat("cannot start ", spec.executable));
  }
  Process process(pid, OpenPidFd(pid));
  int exec_error = 0;
  ssize_t n;
  do {
    n = read(error_pipe[0], &exec_error, sizeof(exec_error));  // ends when exec closes the other end
  } while (n < 0 && errno == EINTR);
  close(error_pipe[0]);
  if (n == sizeof(exec_error)) {
    waitpid(pid, nullptr, 0);
    if (exec_error < 0) return absl::ErrnoToStatus(-exec_error, absl::StrCat("cannot work in ", spec.working_dir));
    return absl::ErrnoToStatus(exec_error, absl::StrCat("cannot execute ", spec.executable));
  }
  return process;
}

Process::~Process() {
  if (pidfd_ >= 0) close(pidfd_);
}

std::optional<ExitStatus> Process::TryWait() {
  if (exit_.has_value() || pid_ < 0) return exit_;
  int status = 0;
  const pid_t waited = waitpid(pid_, &status, WNOHANG);
  if (waited == 0) return std::nullopt;
  ExitStatus exit;
  if (waited == pid_ && WIFEXITED(status)) exit.code = WEXITSTATUS(status);
  if (waited == pid_ && WIFSIGNALED(status)) exit.signal = WTERMSIG(status);
  exit_ = exit;
  return exit_;
}

std::optional<ExitStatus> Process::WaitFor(absl::Duration timeout) {
  const absl::Time deadline = absl::Now() + timeout;
  while (!TryWait().has_value()) {
    const int64_t left = absl::ToInt64Milliseconds(absl::Ceil(deadline - absl::Now(), absl::Milliseconds(1)));
    if (left <= 0) return std::nullopt;
    pollfd poll_fd{pidfd_, POLLIN, 0};
    poll(&poll_fd, 1, static_cast<int>(std::min<int64_t>(left, 60000)));
  }
  return exit_;
}

bool Process::Signal(int signal) {
  if (pid_ < 0 || TryWait().has_value()) return false;
  return syscall(SYS_pidfd_send_signal, pidfd_, signal, nullptr, 0) == 0;
}

}  // namespace manta
