#include "controller/node/controller_link.h"

#include <deque>
#include <utility>

#include "common/rpc/callback_threads.h"
#include "common/rpc/status.h"
#include "grpcpp/client_context.h"

namespace manta::node {

// gRPC's threads touch `incoming_` (while a read runs), `poster_` and `self_`; all else is the loop's.
class ControllerLink::Reactor : public grpc::ClientBidiReactor<v1::NodeEvent, v1::NodeCommand>,
                                public std::enable_shared_from_this<Reactor> {
 public:
  Reactor(EventLoop& loop, std::function<void(const v1::NodeCommand&)> on_command,
          std::function<void(const absl::Status&)> on_end)
      : poster_(loop.poster()), on_command_(std::move(on_command)), on_end_(std::move(on_end)) {}

  void Start(v1::NodeService::Stub* stub) {
    rpc::KeepCallbackThreads();
    self_ = shared_from_this();
    stub->async()->Join(&context_, this);
    AddHold();  // writes start outside of reactions
    StartRead(&incoming_);
    StartCall();
  }
  void Send(const v1::NodeEvent& event) {
    if (finished_) return;
    queue_.push_back(event);
    Pump();
  }
  void Finish() {
    finished_ = true;
    Pump();
  }
  void Abandon() {
    on_command_ = nullptr;
    on_end_ = nullptr;
    finished_ = true;
    queue_.clear();
    context_.TryCancel();
    ReleaseHold();
  }

  void OnReadDone(bool ok) override {
    if (!ok) {
      // The stream is over; OnDone comes once the hold is gone.
      poster_.Post([self = shared_from_this()] { self->ReleaseHold(); });
      return;
    }
    poster_.Post([self = shared_from_this(), command = std::move(incoming_)] {
      if (self->on_command_) self->on_command_(command);
    });
    incoming_ = v1::NodeCommand();
    StartRead(&incoming_);
  }
  void OnWriteDone(bool ok) override {
    poster_.Post([self = shared_from_this(), ok] {
      self->writing_ = false;
      if (!ok) self->queue_.clear();
      self->Pump();
    });
  }
  void OnDone(const grpc::Status& status) override {
    auto self = std::exchange(self_, nullptr);
    poster_.Post([self, status] {
      if (auto on_end = std::exchange(self->on_end_, nullptr)) on_end(rpc::FromGrpc(status));
    });
  }

 private:
  void Pump() {
    if (writing_ || released_) return;
    if (!queue_.empty()) {
      writing_ = true;
      current_ = std::move(queue_.front());
      queue_.pop_front();
      StartWrite(&current_);
    } else if (finished_ && !writes_done_) {
      writes_done_ = true;
      StartWritesDone();
    }
  }
  void ReleaseHold() {
    if (std::exchange(released_, true)) return;
    RemoveHold();
  }

  const EventLoop::Poster poster_;
  std::function<void(const v1::NodeCommand&)> on_command_;
  std::function<void(const absl::Status&)> on_end_;
  grpc::ClientContext context_;  // no deadline: beats and keepalive tell whether the other side lives
  v1::NodeCommand incoming_;
  v1::NodeEvent current_;
  std::deque<v1::NodeEvent> queue_;
  bool writing_ = false, finished_ = false, writes_done_ = false, released_ = false;
  std::shared_ptr<Reactor> self_;
};

std::unique_ptr<ControllerLink> ControllerLink::Open(EventLoop& loop, v1::NodeService::Stub* stub,
                                                     std::function<void(const v1::NodeCommand&)> on_command,
                                                     std::function<void(const absl::Status&)> on_end) {
  auto reactor = std::make_shared<Reactor>(loop, std::move(on_command), std::move(on_end));
  reactor->Start(stub);
  return std::unique_ptr<ControllerLink>(new ControllerLink(std::move(reactor)));
}

ControllerLink::ControllerLink(std::shared_ptr<Reactor> reactor) : reactor_(std::move(reactor)) {}
ControllerLink::~ControllerLink() {
  reactor_->Abandon();
}
void ControllerLink::Send(const v1::NodeEvent& event) {
  reactor_->Send(event);
}
void ControllerLink::Finish() {
  reactor_->Finish();
}

}  // namespace manta::node
