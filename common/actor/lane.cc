#include "common/actor/lane.h"

#include <pthread.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/status.h"
#include "common/rpc/status.h"

namespace manta::actor {
namespace {

absl::Status NotStarted(absl::Status status) {
  v1::ErrorInfo info = GetErrorInfo(status);
  info.set_outcome(v1::CALL_OUTCOME_NOT_STARTED);
  info.set_retryable(true);
  return WithErrorInfo(std::move(status), info);
}

}  // namespace

Lane::Lane(std::string name, int num_threads, size_t capacity) : name_(std::move(name)), capacity_(capacity) {
  MANTA_CHECK(num_threads > 0 && capacity > 0) << "lane " << name_;
  for (int i = 0; i < num_threads; ++i) {
    threads_.emplace_back([this] { RunThread(); });
    pthread_setname_np(threads_.back().native_handle(), name_.substr(0, 15).c_str());
  }
}

Lane::~Lane() {
  Close();
  for (std::thread& thread : threads_) thread.join();
}

absl::Status Lane::Post(absl::AnyInvocable<void()> work) {
  std::lock_guard lock(mu_);
  if (closed_) return NotStarted(absl::UnavailableError(absl::StrCat("lane ", name_, " is closed: the worker stops")));
  if (queue_.size() >= capacity_) {
    return NotStarted(
        absl::ResourceExhaustedError(absl::StrCat("lane ", name_, " is full: ", capacity_, " calls wait already")));
  }
  queue_.push_back(std::move(work));
  changed_.notify_one();
  return absl::OkStatus();
}

grpc::ServerUnaryReactor* Lane::Serve(grpc::CallbackServerContext* context, absl::AnyInvocable<absl::Status()> work) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  absl::Status posted = Post([context, reactor, work = std::move(work)]() mutable {
    if (context->IsCancelled()) {
      reactor->Finish(rpc::ToGrpc(NotStarted(absl::CancelledError("the caller left before the call's turn"))));
      return;
    }
    reactor->Finish(rpc::ToGrpc(work()));
  });
  if (!posted.ok()) reactor->Finish(rpc::ToGrpc(posted));
  return reactor;
}

void Lane::Close() {
  std::lock_guard lock(mu_);
  closed_ = true;
  changed_.notify_all();
}

uint64_t Lane::queued() const {
  std::lock_guard lock(mu_);
  return queue_.size() + running_;
}

uint64_t Lane::running() const {
  std::lock_guard lock(mu_);
  return running_;
}

uint64_t Lane::completed() const {
  std::lock_guard lock(mu_);
  return completed_;
}

void Lane::RunThread() {
  std::unique_lock lock(mu_);
  while (true) {
    changed_.wait(lock, [&] { return closed_ || !queue_.empty(); });
    if (queue_.empty()) return;
    absl::AnyInvocable<void()> work = std::move(queue_.front());
    queue_.pop_front();
    ++running_;
    lock.unlock();
    work();
    work = nullptr;
    lock.lock();
    --running_;
    ++completed_;
  }
}

}  // namespace manta::actor
