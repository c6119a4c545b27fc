// NodeService as the head serves it: agents' streams become sessions of the core on its loop.
//
// A session reads no further while the loop has much of it to work through, and one whose agent does not read what it
// is sent is ended: neither fills the head's memory. Thread-safe; must outlive the server, as the loop and the core
// must.
#pragma once

#include "common/base/event_loop.h"
#include "controller/core/core.h"
#include "manta/v1/node.grpc.pb.h"

namespace manta::controller {

class NodeService final : public v1::NodeService::CallbackService {
 public:
  // `agents_return`: one whose stream has ended is waited for, and its workers live; else (on_controller_loss: stop)
  // the end of its stream is its own and theirs.
  NodeService(EventLoop& loop, core::Core* core, bool agents_return)
      : loop_(loop), core_(core), agents_return_(agents_return) {}
  grpc::ServerBidiReactor<v1::NodeEvent, v1::NodeCommand>* Join(grpc::CallbackServerContext* context) override;

 private:
  class Session;
  EventLoop& loop_;
  core::Core* const core_;
  const bool agents_return_;
};

}  // namespace manta::controller
