// What the cluster's logic reaches the outside through: agents and actors. Real ones speak gRPC; tests have fakes.
// Both are called on the controller's loop and must not block; callbacks come on the loop.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "grpcpp/channel.h"
#include "manta/v1/actor.pb.h"
#include "manta/v1/node.pb.h"

namespace manta::controller {

// The stream to one agent.
class NodeLink {
 public:
  virtual ~NodeLink() = default;
  // Commands arrive in order, or the link ends (Cluster::NodeGone).
  virtual void Send(const v1::NodeCommand& command) = 0;
  virtual void Close(const absl::Status& status) = 0;
};

// The control lane of one actor.
class ActorConnection {
 public:
  virtual ~ActorConnection() = default;  // ends the beats: no callback comes after it
  virtual std::shared_ptr<grpc::Channel> channel() = 0;
  virtual void PeerLost(const v1::PeerLostRequest& request) = 0;
};

class ActorPort {
 public:
  virtual ~ActorPort() = default;
  // Connects to an actor that has announced itself. `on_beat` for each beat; `on_end` once, when the beats have ended
  // for whatever reason.
  virtual absl::StatusOr<std::unique_ptr<ActorConnection>> Connect(const std::string& address,
                                                                   std::function<void(const v1::ActorBeat&)> on_beat,
                                                                   std::function<void(const absl::Status&)> on_end) = 0;
};

}  // namespace manta::controller
