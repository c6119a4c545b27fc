// PendingReply: the answer of a unary call that the loop gives later. It finishes the call exactly once: with what it
// is called with, or, where it is destroyed uncalled (the head ends, its loop is gone), with UNAVAILABLE.
//
//   auto* reactor = context->DefaultReactor();
//   loop.Post([this, request = *request, answer = PendingReply(reactor, reply)]() mutable {
//     core.CreatePlacement(std::move(request), std::move(answer));
//   });
//
// One owner; call it from any thread.
#pragma once

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/rpc/status.h"
#include "grpcpp/support/server_callback.h"

namespace manta::controller {

template <typename Reply>
class PendingReply {
 public:
  PendingReply(grpc::ServerUnaryReactor* reactor, Reply* reply) : reactor_(reactor), reply_(reply) {}
  PendingReply(PendingReply&& other) noexcept
      : reactor_(std::exchange(other.reactor_, nullptr)), reply_(other.reply_) {}
  PendingReply& operator=(PendingReply&&) = delete;
  ~PendingReply() {
    if (reactor_ != nullptr) (*this)(absl::UnavailableError("the controller is ending"));
  }

  void operator()(absl::StatusOr<Reply> answer) {
    if (answer.ok()) *reply_ = *std::move(answer);
    std::exchange(reactor_, nullptr)->Finish(rpc::ToGrpc(answer.status()));
  }

 private:
  grpc::ServerUnaryReactor* reactor_;
  Reply* const reply_;
};

}  // namespace manta::controller
