// Lane: a bounded queue of calls and the threads that run them.
//
// gRPC's threads must not block, so a service's handlers hand their work to a lane and return:
//
//   grpc::ServerUnaryReactor* Train(grpc::CallbackServerContext* context, const v1::TrainRequest* request,
//                                   v1::TrainReply* reply) override {
//     return lane_.Serve(context, [=, this] { return engine_.Train(*request, reply); });
//   }
//
// With one thread a lane runs calls one after the other, in their order. A full queue answers RESOURCE_EXHAUSTED, a
// closed lane UNAVAILABLE; both say NOT_STARTED. A call whose client has gone, or whose deadline has passed, before its
// turn is dropped without running. Work on several lanes does not wait for each other.
//
// Thread-safe. The lane must outlive the server whose calls it runs.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "grpcpp/server_context.h"
#include "grpcpp/support/server_callback.h"

namespace manta::actor {

class Lane {
 public:
  Lane(std::string name, int num_threads, size_t capacity);
  ~Lane();  // Close, then waits for what is queued
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  // Queues `work`; an error where it will not run.
  [[nodiscard]] absl::Status Post(absl::AnyInvocable<void()> work);

  // Queues a unary call's work and finishes the call with what it returns. `work` may look at `context->IsCancelled()`.
  grpc::ServerUnaryReactor* Serve(grpc::CallbackServerContext* context, absl::AnyInvocable<absl::Status()> work);

  // Refuses what is new; what is queued still runs.
  void Close();

  const std::string& name() const { return name_; }
  uint64_t queued() const;  // waiting or running
  uint64_t running() const;
  uint64_t completed() const;  // ran to their end

 private:
  void RunThread();

  const std::string name_;
  const size_t capacity_;
  mutable std::mutex mu_;
  std::condition_variable changed_;
  std::deque<absl::AnyInvocable<void()>> queue_;
  uint64_t running_ = 0, completed_ = 0;
  bool closed_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace manta::actor
