#include "controller/node/shim.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <optional>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/event_loop.h"
#include "common/base/file.h"
#include "controller/node/captured_log.h"
#include "controller/node/packet_socket.h"
#include "controller/node/process.h"
#include "google/protobuf/util/json_util.h"
#include "manta/v1/node.pb.h"

namespace manta::node {
namespace {

constexpr int kAgentFd = 3;
constexpr absl::Duration kOrphanTerm = absl::Seconds(1);  // from SIGTERM to SIGKILL when the agent is gone

class Shim {
 public:
  Shim(std::string record, absl::Duration agent_grace) : record_(std::move(record)), agent_grace_(agent_grace) {}

  int Run() {
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    prctl(PR_SET_NAME, "manta-shim");
    fcntl(kAgentFd, F_SETFD, FD_CLOEXEC);
    fcntl(kAgentFd, F_SETFL, O_NONBLOCK);
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigprocmask(SIG_BLOCK, &set, nullptr);
    for (int ignored : {SIGINT, SIGHUP, SIGPIPE}) signal(ignored, SIG_IGN);
    const int signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    loop_.WatchReadable(signals, [this, signals] {
      signalfd_siginfo info;
      if (read(signals, &info, sizeof(info)) > 0) Terminate(kOrphanTerm);
    });
    loop_.WatchReadable(kAgentFd, [this] { ReadAgent(); });
    loop_.Run();
    SweepDescendants();
    return 0;
  }

 private:
  void ReadAgent() {
    v1::NodeCommand command;
    switch (ReceiveMessage(kAgentFd, &command)) {
      case Received::kNothing:
        return;
      case Received::kClosed:
        loop_.Unwatch(kAgentFd);
        AgentGone();
        return;
      case Received::kMessage:
        break;
    }
    if (command.has_start() && !worker_.has_value()) Start(command.start());
    if (command.has_stop()) {
      asked_to_stop_ = true;
      Terminate(absl::Milliseconds(command.stop().grace_ms()));
    }
  }

  void AgentGone() {
    if (!worker_.has_value()) {
      loop_.Stop();
      return;
    }
    loop_.RunAfter(agent_grace_, [this] {
      log_.Write("manta-shim: the node agent is gone: ending the worker\n");
      Terminate(kOrphanTerm);
    });
  }

  void Start(const v1::StartActor& start) {
    start_ = start;
    absl::Status status = Spawn();
    v1::NodeEvent event;
    if (!status.ok()) {
      v1::ActorStartFailed* failed = event.mutable_start_failed();
      failed->set_actor_id(start.actor_id());
      failed->set_epoch(start.epoch());
      failed->set_message(std::string(status.message()));
      SendMessage(kAgentFd, event);
      loop_.Stop();
      return;
    }
    v1::ActorStarted* started = event.mutable_started();
    started->set_actor_id(start.actor_id());
    started->set_epoch(start.epoch());
    started->set_pid(worker_->pid());
    SendMessage(kAgentFd, event);
  }

  absl::Status Spawn() {
    if (absl::Status status = log_.Open(start_.log_path()); !status.ok()) return status;
    int out[2], err[2];
    if (pipe2(out, O_CLOEXEC) != 0 || pipe2(err, O_CLOEXEC) != 0) return absl::ErrnoToStatus(errno, "no pipes");
    ProcessSpec spec{.executable = start_.executable(),
                     .args = {start_.args().begin(), start_.args().end()},
                     .env = {start_.env().begin(), start_.env().end()},
                     .stdout_fd = out[1],
                     .stderr_fd = err[1],
                     .death_signal = SIGKILL,
                     .new_process_group = true};
    auto spawned = Process::Spawn(spec);
    close(out[1]);
    close(err[1]);
    if (!spawned.ok()) return spawned.status();
    worker_.emplace(std::move(*spawned));
    out_ = out[0];
    err_ = err[0];
    for (int fd : {out_, err_}) {
      fcntl(fd, F_SETFL, O_NONBLOCK);
      loop_.WatchReadable(fd, [this, fd] {
        if (!Copy(fd)) loop_.Unwatch(fd);
      });
    }
    loop_.WatchReadable(worker_->pidfd(), [this] { WorkerEnded(); });
    return absl::OkStatus();
  }

  // What can be read now goes to the log. False at the end.
  bool Copy(int fd) {
    char buffer[16 << 10];
    for (int i = 0; i < 64; ++i) {  // a flood does not keep the loop from its other work
      const ssize_t n = read(fd, buffer, sizeof(buffer));
      if (n < 0) return errno == EAGAIN || errno == EINTR;
      if (n == 0) return false;
      const std::string_view bytes(buffer, static_cast<size_t>(n));
      log_.Write(bytes);
      if (fd == err_) tail_.Append(bytes);
    }
    return true;
  }

  void Terminate(absl::Duration grace) {
    if (!worker_.has_value()) {
      loop_.Stop();
      return;
    }
    worker_->Signal(SIGTERM);
    worker_->Signal(SIGCONT);  // a stopped one could not even take the first
    loop_.RunAfter(grace, [this] { worker_->Signal(SIGKILL); });
  }

  void WorkerEnded() {
    const auto exit = worker_->TryWait();
    if (!exit.has_value()) return;
    loop_.Unwatch(worker_->pidfd());
    Copy(err_);
    Copy(out_);
    v1::NodeEvent event;
    v1::ActorExited* exited = event.mutable_exited();
    exited->set_actor_id(start_.actor_id());
    exited->set_epoch(start_.epoch());
    exited->set_pid(worker_->pid());
    exited->set_exit_code(exit->code);
    exited->set_exit_signal(exit->signal);
    for (const std::string& line : tail_.Lines()) exited->add_last_lines(line);
    exited->set_asked_to_stop(asked_to_stop_);
    SendMessage(kAgentFd, event);
    kill(-worker_->pid(), SIGKILL);
    log_.Write(absl::StrCat("manta-shim: ", start_.actor_id(), " (pid ", worker_->pid(), ") ", exit->ToString(), "\n"));
    WriteRecord(*exited);
    loop_.Stop();
  }

  void WriteRecord(const v1::ActorExited& exited) const {
    if (record_.empty()) return;
    std::string json;
    google::protobuf::util::JsonPrintOptions options;
    options.add_whitespace = true;
    options.preserve_proto_field_names = true;
    (void)google::protobuf::util::MessageToJsonString(exited, &json, options);
    std::error_code ignored;
    std::filesystem::create_directories(std::filesystem::path(record_).parent_path(), ignored);
    (void)WriteFileAtomically(record_, json);  // a full disk does not keep the shim from ending
  }

  // Orphans of the worker's tree have become the shim's children: ends them, generation after generation.
  static void SweepDescendants() {
    const absl::Time give_up = absl::Now() + absl::Seconds(1);
    while (absl::Now() < give_up) {
      while (waitpid(-1, nullptr, WNOHANG) > 0) continue;
      std::ifstream children(absl::StrCat("/proc/self/task/", getpid(), "/children"));
      bool any = false;
      for (pid_t pid; children >> pid;) {
        kill(pid, SIGKILL);
        any = true;
      }
      if (!any) return;
      absl::SleepFor(absl::Milliseconds(5));
    }
  }

  const std::string record_;
  const absl::Duration agent_grace_;
  EventLoop loop_;
  v1::StartActor start_;
  std::optional<Process> worker_;
  CapturedLog log_;
  LineTail tail_;
  int out_ = -1, err_ = -1;
  bool asked_to_stop_ = false;
};

}  // namespace

int ShimMain(const std::vector<std::string>& args) {
  std::string record;
  int64_t grace_ms = 0;
  for (size_t i = 1; i + 1 < args.size(); i += 2) {
    if (args[i] == "--record") {
      record = args[i + 1];
    } else if (args[i] != "--agent-grace-ms" || !absl::SimpleAtoi(args[i + 1], &grace_ms)) {
      std::fprintf(stderr, "manta-node --shim: unexpected argument %s\n", args[i].c_str());
      return 64;
    }
  }
  if (fcntl(kAgentFd, F_GETFD) < 0) {
    std::fprintf(stderr, "manta-node --shim is started by the node agent, which passes it a socket; not by hand\n");
    return 64;
  }
  return Shim(record, absl::Milliseconds(grace_ms)).Run();
}

}  // namespace manta::node
