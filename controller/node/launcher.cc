#include "controller/node/launcher.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/process_info.h"
#include "controller/node/memory_group.h"
#include "controller/node/packet_socket.h"
#include "controller/node/process.h"
#include "controller/node/shim.h"
#include "controller/node/stray_children.h"

namespace manta::node {
namespace {

constexpr int kSocketFd = 3;

class Launcher {
 public:
  Launcher(int agent, std::string state_dir, int argc, char** argv)
      : agent_(agent),
        state_dir_(std::move(state_dir)),
        title_(argc > 0 ? argv[0] : nullptr),
        title_size_(argc > 0 ? argv[argc - 1] + std::strlen(argv[argc - 1]) - argv[0] : 0) {}

  int Run() {
    setsid();  // a signal to the agent's group is not meant for its shims
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    EnterLeaf();
    Title("manta-node --launcher", "manta-launcher");
    for (int ignored : {SIGINT, SIGHUP, SIGPIPE, SIGTERM}) signal(ignored, SIG_IGN);
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    sigprocmask(SIG_SETMASK, &set, nullptr);
    signals_ = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    while (true) {
      pollfd fds[] = {{agent_, POLLIN, 0}, {signals_, POLLIN, 0}};
      if (poll(fds, 2, -1) < 0 && errno != EINTR) return 1;
      if (fds[1].revents != 0) Reap();
      if (fds[0].revents != 0 && !ReadAgent()) return 0;
    }
  }

 private:
  // What ps shows: written over the arguments that main was given, and cut where they were shorter. Words end in zeros,
  // as an argv's do.
  void Title(const std::string& title, const char* name) {
    prctl(PR_SET_NAME, name);
    if (title_ == nullptr) return;
    std::memset(title_, 0, title_size_);
    for (size_t i = 0; i < std::min(title_size_, title.size()); ++i) title_[i] = title[i] == ' ' ? '\0' : title[i];
  }

  bool ReadAgent() {
    std::string packet;
    std::vector<int> fds;
    switch (ReceivePacket(agent_, &packet, &fds)) {
      case Received::kNothing:
        return true;
      case Received::kClosed:
        return false;
      case Received::kMessage:
        break;
    }
    const std::vector<std::string> words = absl::StrSplit(packet, absl::MaxSplits(' ', 2));
    uint64_t id = 0;
    int64_t grace_ms = 0;
    if (words.size() == 3 && fds.size() == 1 && absl::SimpleAtoi(words[0], &id) &&
        absl::SimpleAtoi(words[1], &grace_ms)) {
      Launch(id, grace_ms, words[2], fds[0]);
    }
    for (int fd : fds) close(fd);
    return true;
  }

  void Launch(uint64_t id, int64_t grace_ms, const std::string& name, int socket) {
    const pid_t pid = fork();
    if (pid == 0) {
      close(agent_);
      close(signals_);
      Title(absl::StrCat("manta-node --shim ", name), "manta-shim");
      _exit(RunShim(
          {.agent_fd = socket, .name = name, .state_dir = state_dir_, .agent_grace = absl::Milliseconds(grace_ms)}));
    }
    if (pid < 0) {
      SendPacket(agent_, absl::StrCat("failed ", id, " cannot start a shim: ", std::strerror(errno)));
      return;
    }
    shims_[pid] = id;
    const int pidfd = OpenPidFd(pid);  // it is not reaped yet: no other process can have its number
    std::vector<int> handle;
    if (pidfd >= 0) handle.push_back(pidfd);
    SendPacket(agent_, absl::StrCat("started ", id, " ", pid), handle);
    for (int fd : handle) close(fd);
  }

  void Reap() {
    signalfd_siginfo info;
    while (read(signals_, &info, sizeof(info)) > 0) continue;
    bool killed = false;
    int status = 0;
    for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;) {
      const auto shim = shims_.find(pid);
      if (shim == shims_.end()) continue;
      ExitStatus exit;
      if (WIFEXITED(status)) exit.code = WEXITSTATUS(status);
      if (WIFSIGNALED(status)) exit.signal = WTERMSIG(status);
      SendPacket(agent_, absl::StrCat("ended ", shim->second, " ", exit.ToString()));
      shims_.erase(shim);
      killed |= exit.signal != 0;
    }
    // Workers of a shim that was killed, and what they had started, are this process's children now.
    if (killed) EndStrayChildren([this](pid_t child) { return shims_.count(child) > 0; }, absl::Seconds(1));
  }

  const int agent_;
  const std::string state_dir_;
  char* const title_;
  const size_t title_size_;
  int signals_ = -1;
  std::map<pid_t, uint64_t> shims_;
};

}  // namespace

absl::StatusOr<int> ForkLauncher(const std::string& state_dir, int argc, char** argv) {
  int ends[2];
  if (!MakePacketSocket(ends)) return absl::ErrnoToStatus(errno, "no socket for the launcher");
  const pid_t pid = fork();
  if (pid == 0) {
    close(ends[0]);
    _exit(Launcher(ends[1], state_dir, argc, argv).Run());
  }
  const int error = errno;
  close(ends[1]);
  if (pid > 0) return ends[0];
  close(ends[0]);
  return absl::ErrnoToStatus(error, "cannot fork the launcher");
}

absl::StatusOr<int> ExecuteLauncher(const std::string& state_dir) {
  int ends[2];
  if (!MakePacketSocket(ends)) return absl::ErrnoToStatus(errno, "no socket for the launcher");
  const auto spawned = Process::Spawn({.executable = "/proc/self/exe",
                                       .args = {"--launcher", state_dir},
                                       .argv0 = "manta-node",
                                       .pass_fd = ends[1],
                                       .new_session = true});
  close(ends[1]);
  if (spawned.ok()) return ends[0];
  close(ends[0]);
  return spawned.status();
}

int LauncherMain(const std::string& state_dir, int argc, char** argv) {
  if (fcntl(kSocketFd, F_SETFD, FD_CLOEXEC) < 0) return 64;  // started by an agent, not by hand
  return Launcher(kSocketFd, state_dir, argc, argv).Run();
}

}  // namespace manta::node
