// GrpcUplink: AgentCore's way to the head over NodeService.Join. Where a stream ends with an error, it asks the head's
// machine itself, by a connection of its own, whether anybody listens there: gRPC does not tell a head that has died
// from a cut cable. A connection that is made proves nothing: if the head is there, the next attempt joins it; a proxy
// in between accepts what it cannot pass on. Belongs to its loop.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/base/event_loop.h"
#include "controller/node/ports.h"

namespace manta::node {

class GrpcUplink : public UplinkPort {
 public:
  // Asked for each attempt, for the head may have moved; the channel is a new one, so that no back-off of an earlier
  // attempt delays it.
  struct Target {
    std::string address;  // "HOST:PORT"
    std::string token;
  };
  GrpcUplink(EventLoop& loop, std::function<absl::StatusOr<Target>()> target);
  ~GrpcUplink() override;

  std::function<void(const v1::NodeCommand&)> on_command;
  std::function<void(UplinkLoss, const absl::Status&)> on_down;

  void Open() override;
  void Send(const v1::NodeEvent& event) override;
  void Close() override;

 private:
  class Attempt;
  EventLoop& loop_;
  const std::function<absl::StatusOr<Target>()> target_;
  std::shared_ptr<Attempt> attempt_;
};

}  // namespace manta::node
