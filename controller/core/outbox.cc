#include "controller/core/outbox.h"

namespace manta::controller::core {

Outbox::Outbox(EventLoop& loop, Journal& journal, bool broken)
    : loop_(loop), journal_(journal), broken_(broken), self_(std::make_shared<Outbox*>(this)) {}

Outbox::~Outbox() {
  *self_ = nullptr;
}

void Outbox::Add(absl::AnyInvocable<void()> effect) {
  const uint64_t sequence = broken_ ? 0 : journal_.last_sequence();
  effects_.emplace_back(sequence, std::move(effect));
  const auto flush = [self = self_] {
    if (*self != nullptr) (*self)->Flush();
  };
  if (sequence > journal_.durable_sequence()) {
    if (sequence <= awaited_) return;
    awaited_ = sequence;
    journal_.WhenDurable(sequence, flush);
  } else if (!posted_) {
    posted_ = true;
    loop_.Post(flush);
  }
}

void Outbox::Flush() {
  posted_ = false;
  const auto self = self_;  // an effect may destroy this
  while (*self != nullptr && !effects_.empty()) {
    if (!broken_ && effects_.front().first > journal_.durable_sequence()) return;
    auto effect = std::move(effects_.front().second);
    effects_.pop_front();
    effect();
  }
}

}  // namespace manta::controller::core
