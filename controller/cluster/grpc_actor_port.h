// ActorPort over gRPC: a channel to each actor, with its beats read and its control lane called. Belongs to the loop.
#pragma once

#include <memory>
#include <string>

#include "common/base/event_loop.h"
#include "controller/cluster/ports.h"

namespace manta::controller {

class GrpcActorPort : public ActorPort {
 public:
  GrpcActorPort(EventLoop& loop, std::string token) : loop_(loop), token_(std::move(token)) {}
  absl::StatusOr<std::unique_ptr<ActorConnection>> Connect(const std::string& address,
                                                           std::function<void(const v1::ActorBeat&)> on_beat,
                                                           std::function<void(const absl::Status&)> on_end) override;

 private:
  EventLoop& loop_;
  const std::string token_;
};

}  // namespace manta::controller
