#include "common/actor/zygote.h"

#include <dirent.h>
#include <fcntl.h>
#include <grpc/grpc.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/actor/shim_link.h"
#include "manta/v1/node.pb.h"

namespace manta::actor {
namespace {

constexpr size_t kMaxPacket = 256 << 10;
constexpr int kNumDescriptors = 3;  // stdout, stderr, link

void Say(int fd, const std::string& text) {
  while (send(fd, text.data(), text.size(), MSG_NOSIGNAL) < 0 && errno == EINTR) continue;
}

int NumThreads() {
  int count = 0;
  if (DIR* dir = opendir("/proc/self/task")) {
    while (const dirent* entry = readdir(dir)) count += entry->d_name[0] != '.';
    closedir(dir);
  }
  return count;
}

// False at the end of the shim. `descriptors`: -1 where fewer came.
bool Receive(int fd, std::string* bytes, int (&descriptors)[kNumDescriptors]) {
  bytes->resize(kMaxPacket);
  iovec part{bytes->data(), bytes->size()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(descriptors))];
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  header.msg_control = control;
  header.msg_controllen = sizeof(control);
  ssize_t n;
  do {
    n = recvmsg(fd, &header, MSG_CMSG_CLOEXEC);
  } while (n < 0 && errno == EINTR);
  if (n <= 0) return false;
  bytes->resize(static_cast<size_t>(n));
  for (int& descriptor : descriptors) descriptor = -1;
  const cmsghdr* c = CMSG_FIRSTHDR(&header);
  if (c != nullptr && c->cmsg_type == SCM_RIGHTS && c->cmsg_len == CMSG_LEN(sizeof(descriptors))) {
    std::memcpy(descriptors, CMSG_DATA(c), sizeof(descriptors));
  }
  return true;
}

// In the worker, which has just been forked: takes its place among the shim's children, and its start's circumstances.
std::vector<std::string> Become(const v1::StartActor& start, const int (&descriptors)[kNumDescriptors], int zygote,
                                pid_t shim) {
  // Its own parent ends at once; then it is the nearest subreaper's, which is the shim.
  while (getppid() != shim) usleep(50);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != shim) _exit(127);
  close(zygote);
  setpgid(0, 0);
  prctl(PR_SET_NAME, start.actor_id().substr(0, 15).c_str());
  dup2(descriptors[0], STDOUT_FILENO);
  dup2(descriptors[1], STDERR_FILENO);
  close(descriptors[0]);
  close(descriptors[1]);
  clearenv();
  for (const auto& [name, value] : start.env()) setenv(name.c_str(), value.c_str(), 1);
  if (const char* dir = std::getenv(kWorkingDirVariable); dir != nullptr && *dir != '\0' && chdir(dir) != 0) {
    std::fprintf(stderr, "cannot work in %s: %s\n", dir, std::strerror(errno));
    _exit(127);
  }
  setenv(kShimFdVariable, absl::StrCat(descriptors[2]).c_str(), 1);
  std::vector<std::string> args = {start.executable()};
  args.insert(args.end(), start.args().begin(), start.args().end());
  return args;
}

}  // namespace

std::optional<std::vector<std::string>> MaybeServeAsZygote() {
  const char* text = std::getenv(kZygoteFdVariable);
  int fd = -1;
  if (text == nullptr || !absl::SimpleAtoi(text, &fd) || fd < 0) return std::nullopt;
  unsetenv(kZygoteFdVariable);
  fcntl(fd, F_SETFD, FD_CLOEXEC);
  fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK);  // this process has nothing else to do
  const pid_t shim = getppid();
  const int threads = NumThreads();
  if (threads != 1 || grpc_is_initialized() != 0) {
    Say(fd, threads != 1 ? absl::StrCat("refused it has ", threads, " threads before it creates its Worker")
                         : "refused it has used gRPC before it creates its Worker");
    _exit(0);
  }
  Say(fd, "ready");
  std::string packet;
  int descriptors[kNumDescriptors];
  while (Receive(fd, &packet, descriptors)) {
    v1::StartActor start;
    if (descriptors[0] < 0 || !start.ParseFromString(packet)) _exit(1);
    // Twice, so that the worker becomes a child of the shim's, as one is that the shim executes.
    const pid_t middle = fork();
    if (middle == 0) {
      const pid_t worker = fork();
      if (worker == 0) return Become(start, descriptors, fd, shim);
      const std::string who = absl::StrCat(start.actor_id(), " ", start.epoch(), " ");
      Say(fd, worker > 0 ? absl::StrCat("forked ", who, worker) : absl::StrCat("failed ", who, std::strerror(errno)));
      _exit(0);
    }
    if (middle < 0) {
      Say(fd, absl::StrCat("failed ", start.actor_id(), " ", start.epoch(), " ", std::strerror(errno)));
    } else {
      waitpid(middle, nullptr, 0);
    }
    for (const int descriptor : descriptors) close(descriptor);
  }
  _exit(0);  // the shim is gone
}

}  // namespace manta::actor
