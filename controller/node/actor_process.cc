#include "controller/node/actor_process.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "controller/node/captured_log.h"
#include "controller/node/packet_socket.h"

namespace manta::node {

ActorProcess::ActorProcess(EventLoop& loop, v1::StartActor start, OnEvent on_event)
    : loop_(loop), start_(std::move(start)), on_event_(std::move(on_event)) {}

ActorProcess::~ActorProcess() {
  loop_.Cancel(kill_timer_);
  if (shim_.has_value()) loop_.Unwatch(shim_->pidfd());
  if (socket_ >= 0) {
    loop_.Unwatch(socket_);
    close(socket_);
  }
  if (!shim_.has_value()) return;
  // The shim ends by itself in a moment, having swept up after its worker: reaped then, so that no zombie stays.
  auto shim = std::make_shared<Process>(std::move(*shim_));
  if (shim->TryWait().has_value()) return;
  loop_.WatchReadable(shim->pidfd(), [&loop = loop_, shim]() mutable {
    shim->TryWait();
    loop.Unwatch(shim->pidfd());
  });
}

absl::Status ActorProcess::Start(const std::string& record, absl::Duration agent_grace) {
  int ends[2];
  if (!MakePacketSocket(ends)) return absl::ResourceExhaustedError("no descriptors left for a worker's shim");
  socket_ = ends[0];
  auto spawned = Process::Spawn({.executable = "/proc/self/exe",
                                 .args = {"--shim", start_.actor_id(), "--record", record, "--agent-grace-ms",
                                          absl::StrCat(absl::ToInt64Milliseconds(agent_grace))},
                                 .argv0 = "manta-node",
                                 .pass_fd = ends[1],
                                 .new_session = true});
  close(ends[1]);
  loop_.WatchReadable(socket_, [this] { ReadShim(); });
  if (!spawned.ok()) return spawned.status();
  shim_.emplace(std::move(*spawned));
  loop_.WatchReadable(shim_->pidfd(), [this] { ShimEnded(); });
  v1::NodeCommand command;
  *command.mutable_start() = start_;
  if (!SendMessage(socket_, command)) {
    shim_->Signal(SIGKILL);
    return absl::InvalidArgumentError(absl::StrCat("the arguments of ", start_.actor_id(), " are too long"));
  }
  return absl::OkStatus();
}

void ActorProcess::Stop(absl::Duration grace) {
  if (!shim_.has_value()) return;
  asked_to_stop_ = true;
  v1::NodeCommand command;
  command.mutable_stop()->set_actor_id(start_.actor_id());
  command.mutable_stop()->set_epoch(start_.epoch());
  command.mutable_stop()->set_grace_ms(absl::ToInt64Milliseconds(grace));
  SendMessage(socket_, command);
  loop_.Cancel(kill_timer_);
  kill_timer_ = loop_.RunAfter(grace + absl::Seconds(1), [this] { shim_->Signal(SIGKILL); });
}

void ActorProcess::ReadShim() {
  v1::NodeEvent event;
  switch (ReceiveMessage(socket_, &event)) {
    case Received::kNothing:
      return;
    case Received::kClosed:
      loop_.Unwatch(socket_);  // its end is told by the pidfd
      return;
    case Received::kMessage:
      break;
  }
  if (event.has_started()) worker_pid_ = static_cast<int>(event.started().pid());
  if (event.has_exited() && asked_to_stop_) event.mutable_exited()->set_asked_to_stop(true);
  Report(event);
}

void ActorProcess::ShimEnded() {
  const auto exit = shim_->TryWait();
  if (!exit.has_value()) return;
  loop_.Unwatch(shim_->pidfd());
  // What it said last may still be unread.
  v1::NodeEvent event;
  if (ReceiveMessage(socket_, &event) == Received::kMessage) {
    if (event.has_started()) {
      worker_pid_ = static_cast<int>(event.started().pid());
    } else {
      Report(event);
      return;
    }
  }
  if (worker_pid_ > 0) {
    kill(-worker_pid_, SIGKILL);  // PDEATHSIG has ended the worker itself; this is for what it had started
    // The agent is a subreaper: the worker has become its child, and is reaped here.
    for (int i = 0; i < 100 && waitpid(worker_pid_, nullptr, WNOHANG) == 0; ++i) usleep(1000);
  }
  event.Clear();
  v1::ActorExited* exited = event.mutable_exited();
  exited->set_actor_id(start_.actor_id());
  exited->set_epoch(start_.epoch());
  exited->set_pid(worker_pid_);
  exited->set_exit_code(-1);
  exited->set_exit_signal(SIGKILL);
  exited->set_asked_to_stop(asked_to_stop_);
  std::vector<std::string> lines = LastLinesOf(start_.log_path(), 49);
  lines.push_back(absl::StrCat("manta-node: the shim of ", start_.actor_id(), " (pid ", shim_->pid(), ") ",
                               exit->ToString(), ", and its worker was killed with it"));
  for (std::string& line : lines) exited->add_last_lines(std::move(line));
  Report(event);
}

void ActorProcess::Report(const v1::NodeEvent& event) {
  if (reported_) return;
  if (event.has_exited() || event.has_start_failed()) reported_ = true;
  const OnEvent on_event = on_event_;
  on_event(event);
}

}  // namespace manta::node
