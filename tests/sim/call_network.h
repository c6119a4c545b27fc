// The inside of Calls: servers, wires, connections. See calls.h.
#pragma once

#include <deque>
#include <optional>

#include "common/call/core/call_table.h"
#include "common/call/core/lanes.h"
#include "tests/sim/calls.h"

namespace manta::sim {

// One direction of a wire: messages in order, each after a delay, none while the cable is cut.
class Pipe : public std::enable_shared_from_this<Pipe> {
 public:
  // `from`: of a caller that is on a host, too; may be null.
  Pipe(EventLoop& loop, RandomStream& random, std::shared_ptr<Link> link, std::shared_ptr<Link> from, bool wild)
      : loop_(loop), random_(random), link_(std::move(link)), from_(std::move(from)), wild_(wild) {}
  void Send(std::function<void()> message) {
    if (wild_ && random_.NextBelow(20) == 0) messages_.push_back(message);  // twice
    messages_.push_back(std::move(message));
    if (wild_ && messages_.size() > 1 && random_.NextBelow(20) == 0) std::swap(messages_.front(), messages_.back());
    Pump();
  }
  void Clear() { messages_.clear(); }  // they hold what holds this
  // What is on its way stays there for so long: in buffers of a process that is stopped, or between.
  void Hold(absl::Duration time) { held_until_ = loop_.Now() + time; }

 private:
  void Pump() {
    if (pumping_ || messages_.empty()) return;
    pumping_ = true;
    absl::Duration delay = link_->slowness + (from_ == nullptr ? absl::ZeroDuration() : from_->slowness) +
                           absl::Microseconds(100 + random_.NextBelow(2000));
    if (random_.NextBelow(40) == 0) delay += absl::Milliseconds(random_.NextBelow(300));
    loop_.RunAfter(Cut() ? absl::Milliseconds(250) : delay, [self = shared_from_this()] {
      self->pumping_ = false;
      if (!self->Cut() && !self->messages_.empty()) {
        const auto message = std::move(self->messages_.front());
        self->messages_.pop_front();
        message();
      }
      self->Pump();
    });
  }

  bool Cut() const { return link_->cut || (from_ != nullptr && from_->cut) || loop_.Now() < held_until_; }

  EventLoop& loop_;
  RandomStream& random_;
  const std::shared_ptr<Link> link_, from_;
  const bool wild_;
  std::deque<std::function<void()>> messages_;
  bool pumping_ = false;
  absl::Time held_until_ = absl::InfinitePast();
};

// A process that serves calls, one at a time.
struct Calls::Server {
  Key key;
  std::string node;
  std::shared_ptr<Link> link;
  bool alive = true;
  std::unique_ptr<call::CallTable> table;
  call::LaneSet lanes;
  int lane = 0;
  bool runs = false;
  std::map<uint64_t, uint64_t> last_seq;       // by session: what ran last
  std::map<std::string, uint64_t> last_epoch;  // by calling actor: of what ran last
  std::map<std::string, uint64_t> fences;      // by group
  std::vector<std::weak_ptr<Wire>> wires;
};

// One link of a session. It goes on carrying what was sent on it when either end has given it up.
struct Calls::Wire {
  std::shared_ptr<Pipe> up, down;
  std::weak_ptr<Conn> conn;
  std::shared_ptr<Server> server;
  std::shared_ptr<call::ServerSession> session;
  uint64_t client_link = 0, server_link = 0;
  bool given_up = false;  // by the client
};

// A caller's session with one actor.
struct Calls::Conn {
  Caller* caller = nullptr;
  Key key;
  uint64_t incarnation = 0;
  std::unique_ptr<call::ClientSession> session;
  std::shared_ptr<Wire> wire;
  absl::Time broken_since;
  bool open = false, failed = false, ticks = false;
  std::vector<std::function<void()>> waiting;  // for it to open, or to fail
};

struct Calls::Caller {
  std::string id;
  bool durable = false;
  uint64_t incarnation = 0;    // of this object's process: what comes later checks it
  Key self;                    // of an actor
  std::shared_ptr<Link> link;  // of its host; null where it has none here
  std::map<Key, std::shared_ptr<Conn>> conns;
  std::vector<Key> known;      // actors, as the head said when it was last asked
  std::set<uint64_t> pending;  // requests that are not over
};

class Calls::ClientEnd final : public call::CallBatchSink {
 public:
  ClientEnd(Calls* calls, std::shared_ptr<Wire> wire) : calls_(calls), wire_(std::move(wire)) {}
  void Write(const v1::CallBatch& batch) override;

 private:
  Calls* const calls_;
  const std::shared_ptr<Wire> wire_;
};

class Calls::ServerEnd final : public call::ReplyBatchSink {
 public:
  ServerEnd(Calls* calls, const std::shared_ptr<Wire>& wire) : calls_(calls), wire_(wire) {}
  void Write(const v1::ReplyBatch& batch) override;
  void Close(const absl::Status& why) override;

 private:
  Calls* const calls_;
  const std::weak_ptr<Wire> wire_;  // which holds the session that holds this
};

}  // namespace manta::sim
