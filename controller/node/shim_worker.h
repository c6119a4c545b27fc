// ShimWorker: one worker process, as its shim sees it: its start, its output, its reports, its end. Belongs to the
// shim's loop and thread.
#pragma once

#include <array>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/base/event_loop.h"
#include "controller/node/captured_log.h"
#include "controller/node/environment.h"
#include "controller/node/limits.h"
#include "controller/node/packet_socket.h"
#include "controller/node/process.h"
#include "manta/v1/node.pb.h"

namespace manta::node {

class ShimWorker {
 public:
  struct Host {
    EventLoop* loop;
    std::function<void(v1::ActorReport)> report;
    // Its process has ended, and the report of that has been made. It may be destroyed later, not in this call.
    std::function<void(const v1::ActorReport& exit)> ended;
  };
  ShimWorker(Host host, v1::StartActor start);
  ~ShimWorker();
  ShimWorker(const ShimWorker&) = delete;
  ShimWorker& operator=(const ShimWorker&) = delete;

  // First: its log, its pipes, its environment. Then either Execute, or, by a zygote: what Request and descriptors say,
  // and Forked when there is a process. What is not OK is what the system said: the worker is then of no use.
  [[nodiscard]] absl::Status Prepare();
  [[nodiscard]] absl::Status Execute();
  v1::StartActor Request() const;
  std::vector<int> descriptors() const { return {child_fds_.begin(), child_fds_.end()}; }
  void Forked(pid_t pid);
  bool begun() const { return process_.has_value(); }

  // SIGTERM, and SIGKILL after `grace`.
  void Terminate(absl::Duration grace, bool asked_to_stop);
  void Fence(const std::string& why);  // SIGKILL; its exit says `fenced`
  void Order(const v1::WorkerOrder& order);
  void Log(const std::string& line) { log_.Write("manta-shim: " + line + "\n"); }

  const v1::StartActor& start() const { return start_; }
  pid_t pid() const { return process_.has_value() ? process_->pid() : -1; }
  v1::ActorReport Snapshot() const;

 private:
  void Begin(Process process);
  void CloseChildEnds();
  bool Copy(int fd);
  Received ReadReport();
  void BeatIsLate();
  void AskForStacks(const std::string& reason);
  void AskNextThread();
  void Ended();
  v1::ActorReport Report() const;  // with the identity filled in
  void WriteRecord(const v1::ActorExited& exited) const;

  const Host host_;
  const v1::StartActor start_;
  std::optional<Process> process_;
  CapturedLog log_;
  LineTail tail_;
  int out_ = -1, err_ = -1, link_ = -1;
  std::array<int, 3> child_fds_ = {-1, -1, -1};  // the worker's ends: stdout, stderr, link
  WorkerEnvironment environment_;
  WorkerLimits limits_;
  std::optional<absl::Duration> end_at_once_;  // asked to end before there was a process
  EventLoop::TimerId kill_timer_ = 0, stack_timer_ = 0, beat_timer_ = 0;
  absl::Time own_beat_ = absl::InfinitePast();
  std::optional<absl::Duration> cpu_time_;  // when its beat was late last
  std::vector<pid_t> threads_to_ask_;       // for their stacks
  bool asked_to_stop_ = false, fenced_ = false;
  v1::ActorSnapshot snapshot_;
};

}  // namespace manta::node
