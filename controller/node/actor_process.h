// ActorProcess: the agent's side of one worker: starts its shim, hands on what the shim says, and makes up for a shim
// that was killed. Exactly one of start_failed and exited is reported for each, and after it nothing. Belongs to the
// agent's loop.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/event_loop.h"
#include "controller/node/process.h"
#include "manta/v1/node.pb.h"

namespace manta::node {

class ActorProcess {
 public:
  using OnEvent = std::function<void(const v1::NodeEvent&)>;
  // `on_event` may destroy this in its last call.
  ActorProcess(EventLoop& loop, v1::StartActor start, OnEvent on_event);
  ~ActorProcess();
  ActorProcess(const ActorProcess&) = delete;
  ActorProcess& operator=(const ActorProcess&) = delete;

  // `record`: the file for the exit status. `agent_grace`: how long the worker survives this agent.
  [[nodiscard]] absl::Status Start(const std::string& record, absl::Duration agent_grace);
  // SIGTERM, SIGKILL after `grace`; a shim that does not answer is killed a second later, and its worker with it.
  void Stop(absl::Duration grace);
  uint64_t epoch() const { return start_.epoch(); }

 private:
  void ReadShim();
  void ShimEnded();
  void Report(const v1::NodeEvent& event);

  EventLoop& loop_;
  const v1::StartActor start_;
  const OnEvent on_event_;
  std::optional<Process> shim_;
  int socket_ = -1;
  int worker_pid_ = -1;
  EventLoop::TimerId kill_timer_ = 0;
  bool asked_to_stop_ = false, reported_ = false;
};

}  // namespace manta::node
