// ServerCall: a session's record of one call. The session's mutex guards it, but for what CallContext says of itself.
#pragma once

#include <string>
#include <utility>

#include "common/call/core/server_session.h"

namespace manta::call {

struct ServerCall final : CallContext {
  enum class State : uint8_t { kFree, kQueued, kRunning, kDone };
  explicit ServerCall(ServerSession* s) : session(s) {}

  const v1::CallerId& caller() const override { return session->caller(); }
  void OnCancel(absl::AnyInvocable<void()> callback) override { session->SetOnCancel(this, std::move(callback)); }
  absl::Status WriteItem(std::string payload) override { return session->WriteItem(this, std::move(payload)); }

  // Takes the caller's message over; the memory of the last one goes back into the batch.
  void Take(v1::Call& call, absl::Time now) {
    call_.Swap(&call);
    deadline_ = now + absl::Milliseconds(call_.deadline_ms());
    argument_ = std::as_bytes(std::span(call_.payload().data(), call_.payload().size()));
    cancelled_ = false;
  }
  void Cancel() { cancelled_ = true; }
  void LetGo() {  // of the argument
    holder_ = nullptr;
    argument_ = {};
    constexpr size_t kKeptCapacity = 4096;
    if (call_.payload().capacity() > kKeptCapacity) std::string().swap(*call_.mutable_payload());
  }
  uint64_t seq() const { return call_.seq(); }

  ServerSession* const session;
  State state = State::kFree;
  bool ran = false;         // its handler was entered
  bool sent_items = false;  // of a stream: they cannot be sent again
  bool stream_broken = false;
  bool kept = false;     // its reply counts in the table's kept_bytes
  bool dropped = false;  // its reply was written once and is no more
  bool telling = false;  // its cancel callback runs
  uint32_t credit = 0;
  absl::AnyInvocable<void()> on_cancel;
  v1::Reply reply;
};

}  // namespace manta::call
