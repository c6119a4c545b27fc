// Agent: what a node agent does with the controller's commands: starts actors, stops them, says how they end.
//
// It knows the controller only as somewhere to send events to, so that a test drives it without a network. When the
// controller is gone it ends every actor and then itself: nothing is left behind. Belongs to its loop.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "absl/time/time.h"
#include "common/base/event_loop.h"
#include "controller/node/actor_process.h"
#include "manta/v1/node.pb.h"

namespace manta::node {

class Agent {
 public:
  using Send = std::function<void(const v1::NodeEvent&)>;
  // `on_done` is called once, when the agent has been told to end (or has lost its controller) and no actor is left.
  Agent(EventLoop& loop, std::vector<v1::Gpu> gpus, Send send, std::function<void()> on_done);

  void OnCommand(const v1::NodeCommand& command);
  // Ends all actors, each with `grace` between SIGTERM and SIGKILL, then calls on_done.
  void Shutdown(absl::Duration grace);

 private:
  void OnWelcome(const v1::NodeWelcome& welcome);
  void Beat();
  void StartActor(v1::StartActor start);
  void OnActorEvent(const std::string& actor_id, const v1::NodeEvent& event);
  void FinishIfDone();

  EventLoop& loop_;
  const std::vector<v1::Gpu> gpus_;
  const Send send_;
  const std::function<void()> on_done_;
  std::string run_dir_;
  absl::Duration beat_interval_ = absl::Seconds(1);
  absl::Duration agent_grace_ = absl::ZeroDuration();
  std::map<std::string, std::unique_ptr<ActorProcess>> actors_;
  bool welcomed_ = false, ending_ = false, done_ = false;
};

}  // namespace manta::node
