// ControllerLink: the agent's stream to the controller (NodeService.Join). Commands and the stream's end come to
// callbacks on the loop; events are queued and written one after the other. Belongs to the loop; the loop must outlive
// it.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "common/base/event_loop.h"
#include "manta/v1/node.grpc.pb.h"

namespace manta::node {

class ControllerLink {
 public:
  // `on_end` is called once, with the reason; OK where the controller ended the stream in order.
  static std::unique_ptr<ControllerLink> Open(EventLoop& loop, v1::NodeService::Stub* stub,
                                              std::function<void(const v1::NodeCommand&)> on_command,
                                              std::function<void(const absl::Status&)> on_end);
  ~ControllerLink();  // cancels the stream; no callback comes after it

  void Send(const v1::NodeEvent& event);
  // Nothing more is sent; the stream ends when what is queued has been written and the controller has ended its side.
  void Finish();

 private:
  class Reactor;
  explicit ControllerLink(std::shared_ptr<Reactor> reactor);
  std::shared_ptr<Reactor> reactor_;
};

}  // namespace manta::node
