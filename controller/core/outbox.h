// Outbox: effects that leave the head in the order in which they were made, each after the journal's rows that it
// follows from are durable. Answers and commands go through it; nothing else may.
//
// Belongs to the loop's thread. Destroying it drops what has not left.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <utility>

#include "absl/functional/any_invocable.h"
#include "common/base/event_loop.h"
#include "controller/core/ports.h"

namespace manta::controller::core {

class Outbox {
 public:
  // `broken`: does not wait (a deliberate fault, for tests that must notice).
  Outbox(EventLoop& loop, Journal& journal, bool broken);
  ~Outbox();

  // Never runs inside this call.
  void Add(absl::AnyInvocable<void()> effect);
  size_t size() const { return effects_.size(); }

 private:
  void Flush();

  EventLoop& loop_;
  Journal& journal_;
  const bool broken_;
  std::deque<std::pair<uint64_t, absl::AnyInvocable<void()>>> effects_;  // with the change that each waits for
  uint64_t awaited_ = 0;                                                 // the newest change that Flush is called for
  bool posted_ = false;
  std::shared_ptr<Outbox*> self_;
};

}  // namespace manta::controller::core
