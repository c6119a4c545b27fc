// The network between the head and the agents: streams of messages, in order, each delayed; links that are cut hold
// what is sent until they heal or the stream is given up. One loop, no threads.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <utility>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/base/event_loop.h"
#include "common/base/random.h"
#include "manta/v1/node.pb.h"

namespace manta::sim {

// One end of a host's cable.
struct Link {
  bool cut = false;
  absl::Duration slowness;  // added to each message
};

// One stream. Each side closes its own end; what is on the way to a closed end is lost.
class Stream : public std::enable_shared_from_this<Stream> {
 public:
  Stream(EventLoop& loop, RandomStream& random, std::shared_ptr<Link> link)
      : loop_(loop), random_(random), link_(std::move(link)) {}

  std::function<void(const v1::NodeEvent&)> at_head;
  std::function<void(const v1::NodeCommand&)> at_agent;
  std::function<void()> head_lost;                      // the other end was closed, or the stream was given up
  std::function<void(const absl::Status&)> agent_lost;  // ... with what the head said at its end

  void ToHead(v1::NodeEvent event) {
    if (agent_open_)
      Deliver(&up_, [self = shared_from_this(), event = std::move(event)] {
        if (self->head_open_ && self->at_head) self->at_head(event);
      });
  }
  void ToAgent(v1::NodeCommand command) {
    if (head_open_)
      Deliver(&down_, [self = shared_from_this(), command = std::move(command)] {
        if (self->agent_open_ && self->at_agent) self->at_agent(command);
      });
  }
  void CloseHead(absl::Status why) {
    if (!std::exchange(head_open_, false)) return;
    Deliver(&down_, [self = shared_from_this(), why = std::move(why)] {
      if (std::exchange(self->agent_open_, false) && self->agent_lost) self->agent_lost(why);
    });
  }
  void CloseAgent() {
    if (!std::exchange(agent_open_, false)) return;
    Deliver(&up_, [self = shared_from_this()] {
      if (std::exchange(self->head_open_, false) && self->head_lost) self->head_lost();
    });
  }
  void Clear() {  // what is on its way holds this
    up_.messages.clear();
    down_.messages.clear();
  }
  void Healed() {
    Flush(&up_);
    Flush(&down_);
  }

 private:
  struct Direction {
    std::deque<absl::AnyInvocable<void()>> messages;  // sent, not yet delivered, in order
    absl::Time last;
  };
  void Deliver(Direction* direction, absl::AnyInvocable<void()> message) {
    direction->messages.push_back(std::move(message));
    if (!link_->cut) Schedule(direction);
  }
  // The next message in order arrives after a delay; while the cable is cut, none does.
  void Schedule(Direction* direction) {
    absl::Duration delay = link_->slowness + absl::Microseconds(100 + random_.NextBelow(3000));
    if (random_.NextBelow(50) == 0) delay += absl::Milliseconds(random_.NextBelow(400));
    direction->last = std::max(direction->last, loop_.Now() + delay);
    loop_.RunAfter(direction->last - loop_.Now(), [self = shared_from_this(), direction] {
      if (self->link_->cut || direction->messages.empty()) return;
      auto message = std::move(direction->messages.front());
      direction->messages.pop_front();
      message();
    });
  }
  void Flush(Direction* direction) {
    for (size_t i = 0; i < direction->messages.size(); ++i) Schedule(direction);
  }

  EventLoop& loop_;
  RandomStream& random_;
  const std::shared_ptr<Link> link_;
  bool head_open_ = true, agent_open_ = true;
  Direction up_, down_;
};

}  // namespace manta::sim
