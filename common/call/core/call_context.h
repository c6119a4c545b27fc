// CallContext: what a handler sees of the call that it serves. It lives until the handler returns; the handler's own
// threads may use it until then. Thread-safe but for set_argument.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "manta/v1/call.pb.h"

namespace manta::call {

class CallContext {
 public:
  CallContext(const CallContext&) = delete;
  CallContext& operator=(const CallContext&) = delete;

  // The argument's bytes: of the message itself, or of the shared memory or the transfer that it names.
  std::span<const std::byte> argument() const { return argument_; }
  std::string_view payload() const { return {reinterpret_cast<const char*>(argument_.data()), argument_.size()}; }
  absl::Time deadline() const { return deadline_; }  // by SteadyNow
  bool cancelled() const { return cancelled_.load(std::memory_order_relaxed); }
  std::string_view key() const { return call_.key(); }
  virtual const v1::CallerId& caller() const = 0;

  // Calls `callback` when the call is cancelled: by its caller, by its deadline, because its session ended or the
  // worker stops; at once where it is already. One callback a call. It does not run, nor still runs, after the
  // handler's return.
  virtual void OnCancel(absl::AnyInvocable<void()> callback) = 0;

  // Streaming methods: hands an item to the caller, waiting for the caller's credit. CANCELLED once the call is.
  virtual absl::Status WriteItem(std::string payload) = 0;

  // For whoever runs the handler: where the bytes lie when they are not the message's, and what holds them.
  void set_argument(std::span<const std::byte> bytes, std::shared_ptr<const void> holder) {
    argument_ = bytes;
    holder_ = std::move(holder);
  }
  const v1::Call& call() const { return call_; }

 protected:
  CallContext() = default;
  ~CallContext() = default;
  v1::Call call_;
  absl::Time deadline_;
  std::span<const std::byte> argument_;
  std::shared_ptr<const void> holder_;
  std::atomic<bool> cancelled_{false};
};

}  // namespace manta::call
