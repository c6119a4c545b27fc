#include "controller/node/local_processes.h"

#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/kill.h"
#include "common/base/process_info.h"
#include "controller/node/launcher.h"
#include "controller/node/packet_socket.h"
#include "controller/node/state_dir.h"
#include "spdlog/spdlog.h"

namespace manta::node {
namespace {

constexpr absl::Duration kRecoverLimit = absl::Seconds(3);  // for living shims to answer
constexpr absl::Duration kVanishStep = absl::Milliseconds(5);
constexpr int kVanishSteps = 200;

bool SendSignal(int pidfd, int signal) {
  return pidfd >= 0 && syscall(SYS_pidfd_send_signal, pidfd, signal, nullptr, 0) == 0;
}

}  // namespace

// Shims that have been asked and have not answered.
struct LocalProcesses::Recovery {
  Recovered result;
  std::set<ShimId> asked;
  std::function<void(Recovered)> done;
  EventLoop::TimerId timer = 0;
};

LocalProcesses::LocalProcesses(EventLoop& loop, int launcher, std::string state_dir, std::string agent_key)
    : loop_(loop), launcher_(launcher), state_dir_(std::move(state_dir)), agent_key_(std::move(agent_key)) {
  loop_.WatchReadable(launcher_, [this] { ReadLauncher(); });
}

LocalProcesses::~LocalProcesses() {
  if (launcher_ >= 0) {
    loop_.Unwatch(launcher_);
    close(launcher_);
  }
  for (auto& [id, shim] : shims_) {
    if (shim.socket >= 0) {
      loop_.Unwatch(shim.socket);
      close(shim.socket);
    }
    if (shim.pidfd >= 0) close(shim.pidfd);
  }
}

ShimId LocalProcesses::StartShim(const ShimSpec& spec) {
  const ShimId id = next_id_++;
  Shim& shim = shims_[id];
  int ends[2];
  if (!MakePacketSocket(ends)) {
    shim.why = "could not be started: no descriptors are left";
    loop_.Post([this, id] { Finish(id); });
    return id;
  }
  shim.socket = ends[0];
  const std::string request = absl::StrCat(id, " ", absl::ToInt64Milliseconds(spec.agent_grace), " ", spec.name);
  if (!SendPacket(launcher_, request, {ends[1]})) {
    shim.why = "could not be started: the launcher does not answer";
    loop_.Post([this, id] { Finish(id); });
  } else {
    Watch(id);
  }
  close(ends[1]);
  return id;
}

void LocalProcesses::Watch(ShimId id) {
  loop_.WatchReadable(shims_.at(id).socket, [this, id] { ReadShim(id); });
}

bool LocalProcesses::Send(ShimId shim, const v1::ShimOrder& order) {
  const auto found = shims_.find(shim);
  return found != shims_.end() && found->second.socket >= 0 && SendMessage(found->second.socket, order);
}

void LocalProcesses::KillShim(ShimId shim) {
  const auto found = shims_.find(shim);
  if (found != shims_.end()) SendSignal(found->second.pidfd, SIGKILL);
}

// ---- The launcher

void LocalProcesses::ReadLauncher() {
  for (int i = 0; i < 64; ++i) {
    std::string packet;
    std::vector<int> fds;
    const Received received = ReceivePacket(launcher_, &packet, &fds);
    if (received == Received::kNothing) return;
    if (received == Received::kClosed) {
      LauncherGone();
      return;
    }
    const std::vector<std::string> words = absl::StrSplit(packet, absl::MaxSplits(' ', 2));
    uint64_t id = 0;
    const auto shim = words.size() == 3 && absl::SimpleAtoi(words[1], &id) ? shims_.find(id) : shims_.end();
    if (shim != shims_.end() && words[0] == "started" && fds.size() == 1) {
      (void)absl::SimpleAtoi(words[2], &shim->second.pid);
      std::swap(shim->second.pidfd, fds[0]);
    } else if (shim != shims_.end() && words[0] == "failed") {
      shim->second.why = absl::StrCat("could not be started: ", words[2]);
    } else if (shim != shims_.end() && words[0] == "ended") {
      shim->second.why = words[2];
    }
    for (int fd : fds) {
      if (fd >= 0) close(fd);
    }
  }
}

void LocalProcesses::LauncherGone() {
  loop_.Unwatch(launcher_);
  close(std::exchange(launcher_, -1));
  spdlog::error("the launcher of shims is gone: starting another");
  const auto launcher = ExecuteLauncher(state_dir_);
  if (!launcher.ok()) {
    spdlog::error("no actor can be started here: {}", std::string(launcher.status().message()));
    return;
  }
  launcher_ = *launcher;
  loop_.WatchReadable(launcher_, [this] { ReadLauncher(); });
}

// ---- Shims

void LocalProcesses::Note(Shim& shim, const v1::ShimReport& report) {
  for (const v1::ActorReport& actor : report.actors()) {
    if (actor.pid() <= 0) continue;
    if (actor.has_exited()) {
      shim.workers.erase(actor.pid());
    } else {
      shim.workers.insert(actor.pid());
    }
  }
}

void LocalProcesses::ReadShim(ShimId id) {
  for (int i = 0; i < 64; ++i) {
    const auto found = shims_.find(id);
    if (found == shims_.end() || found->second.socket < 0) return;
    v1::ShimReport report;
    const Received received = ReceiveMessage(found->second.socket, &report);
    if (received == Received::kNothing) return;
    if (received == Received::kClosed) {
      loop_.Unwatch(found->second.socket);
      close(std::exchange(found->second.socket, -1));
      Vanish(id);
      return;
    }
    Note(found->second, report);
    if (recovery_ != nullptr && recovery_->asked.erase(id) > 0) {
      recovery_->result.shims.push_back({id, std::move(report)});
      if (recovery_->asked.empty()) {
        loop_.Cancel(recovery_->timer);
        loop_.Post([recovery = std::exchange(recovery_, nullptr)] { recovery->done(std::move(recovery->result)); });
      }
      continue;
    }
    on_report(id, report);
  }
}

// A shim's socket has ended: is it dead, and are the workers that it has not reported? PDEATHSIG ends those a moment
// after it.
void LocalProcesses::Vanish(ShimId id) {
  Shim& shim = shims_.at(id);
  if (launcher_ >= 0) ReadLauncher();
  bool alive = false;
  for (const int64_t worker : shim.workers) {
    if (shim.waits == 0) KillGroup(worker, SIGKILL);  // what it had started
    waitpid(static_cast<pid_t>(worker), nullptr, WNOHANG);            // where this process has become its parent
    alive |= KillProcess(worker, 0);
  }
  const bool unknown = shim.why.empty() && !shim.workers.empty() && shim.waits < 20;  // the launcher will say
  if ((alive || unknown) && ++shim.waits < kVanishSteps) {
    loop_.RunAfter(kVanishStep, [this, id] { Vanish(id); });
    return;
  }
  Finish(id);
}

void LocalProcesses::Finish(ShimId id) {
  const auto found = shims_.find(id);
  if (found == shims_.end()) return;
  Shim shim = std::move(found->second);
  shims_.erase(found);
  if (shim.socket >= 0) close(shim.socket);
  if (shim.pidfd >= 0) close(shim.pidfd);
  if (shim.pid > 0) waitpid(static_cast<pid_t>(shim.pid), nullptr, WNOHANG);  // a launcher's that is gone: ours
  if (recovery_ != nullptr && recovery_->asked.erase(id) > 0 && recovery_->asked.empty()) {
    loop_.Cancel(recovery_->timer);
    loop_.Post([recovery = std::exchange(recovery_, nullptr)] { recovery->done(std::move(recovery->result)); });
    return;
  }
  on_gone(id, shim.why.empty() ? "has ended" : shim.why);
}

// ---- What an earlier agent has left

void LocalProcesses::Recover(std::function<void(Recovered)> done) {
  recovery_ = std::make_shared<Recovery>();
  recovery_->done = std::move(done);
  v1::ShimOrder adopt;
  adopt.mutable_adopt()->set_agent_key(agent_key_);
  for (const std::string& name : ShimNames(state_dir_)) {
    const int fd = ConnectToShim(state_dir_, name);
    ucred peer{};
    socklen_t length = sizeof(peer);
    if (fd < 0 || getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0 || peer.uid != geteuid() ||
        !SendMessage(fd, adopt)) {
      if (fd >= 0) close(fd);
      RemoveShimSocket(state_dir_, name);  // nobody listens: a shim that was killed
      continue;
    }
    const ShimId id = next_id_++;
    Shim& shim = shims_[id];
    shim.socket = fd;
    shim.pid = peer.pid;
    shim.pidfd = OpenPidFd(peer.pid);
    recovery_->asked.insert(id);
    Watch(id);
  }
  recovery_->result.exits = ReadExits(state_dir_);
  const auto finish = [this] {
    if (recovery_ == nullptr) return;
    for (const ShimId id : recovery_->asked) {  // stopped, or of another kind: without it, its workers end
      spdlog::error("the shim with pid {} does not answer: it is killed", shims_.at(id).pid);
      KillShim(id);
    }
    const auto recovery = std::exchange(recovery_, nullptr);
    recovery->done(std::move(recovery->result));
  };
  if (recovery_->asked.empty()) {
    loop_.Post(finish);
  } else {
    recovery_->timer = loop_.RunAfter(kRecoverLimit, finish);
  }
}

}  // namespace manta::node
