#include "common/comm/device_session.h"

#include <deque>
#include <thread>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/comm/device_source.h"
#include "common/rpc/status.h"

namespace manta::comm {
namespace {

constexpr int kMaxSessions = 256;
constexpr size_t kMaxQueued = 4;  // a reader waits for each reply before it asks on

class Refusal final : public grpc::ServerBidiReactor<v1::DeviceRequest, v1::DeviceReply> {
 public:
  explicit Refusal(const absl::Status& status) { Finish(rpc::ToGrpc(status)); }
  void OnDone() override { delete this; }
};

}  // namespace

// Deleted by gRPC's OnDone, which comes after Finish, which is the last thing that its thread does with it.
class DeviceSessions::Session final : public grpc::ServerBidiReactor<v1::DeviceRequest, v1::DeviceReply>,
                                      public DeviceConversation {
 public:
  explicit Session(DeviceSessions* owner) : owner_(*owner) {
    StartRead(&incoming_);
    std::thread([this] { RunThread(); }).detach();
  }

  // ---- gRPC's threads ----
  void OnReadDone(bool ok) override {
    absl::MutexLock lock(&mutex_);
    if (ok && queue_.size() < kMaxQueued) {
      queue_.push_back(std::move(incoming_));
      StartRead(&incoming_);
    } else {
      gone_ = true;
    }
  }
  void OnWriteDone(bool ok) override {
    absl::MutexLock lock(&mutex_);
    writing_ = false;
    if (!ok) gone_ = true;
  }
  void OnCancel() override {
    absl::MutexLock lock(&mutex_);
    gone_ = true;
  }
  void OnDone() override { delete this; }

  // ---- The session's thread ----
  absl::StatusOr<v1::DeviceRequest> Next(absl::Duration timeout) override {
    const auto ready = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return gone_ || !queue_.empty(); };
    absl::MutexLock lock(&mutex_);
    if (!mutex_.AwaitWithTimeout(absl::Condition(&ready), timeout)) {
      return absl::DeadlineExceededError("the reader asks for nothing");
    }
    if (queue_.empty()) return Gone();
    v1::DeviceRequest request = std::move(queue_.front());
    queue_.pop_front();
    return request;
  }
  absl::Status Send(const v1::DeviceReply& reply) override {
    const auto written = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return !writing_; };
    absl::MutexLock lock(&mutex_);
    if (gone_) return Gone();
    outgoing_ = reply;
    writing_ = true;
    StartWrite(&outgoing_);
    mutex_.Await(absl::Condition(&written));  // gRPC ends every write, at the latest when the stream is cancelled
    return gone_ ? Gone() : absl::OkStatus();
  }
  absl::Status Check() override {
    absl::MutexLock lock(&mutex_);
    return gone_ ? Gone() : absl::OkStatus();
  }

 private:
  static absl::Status Gone() { return absl::CancelledError("the reader of the weights is gone"); }

  void RunThread() {
    const absl::Status status = DeviceSource(owner_.store_, this).Run();
    DeviceSessions& owner = owner_;
    Finish(rpc::ToGrpc(status));  // from here on this may be deleted
    absl::MutexLock lock(&owner.mutex_);
    --owner.running_;
  }

  DeviceSessions& owner_;
  absl::Mutex mutex_;
  std::deque<v1::DeviceRequest> queue_ ABSL_GUARDED_BY(mutex_);
  v1::DeviceRequest incoming_;
  v1::DeviceReply outgoing_;
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool gone_ ABSL_GUARDED_BY(mutex_) = false;
};

grpc::ServerBidiReactor<v1::DeviceRequest, v1::DeviceReply>* DeviceSessions::Start() {
  absl::MutexLock lock(&mutex_);
  if (running_ >= kMaxSessions) {
    return new Refusal(absl::ResourceExhaustedError(absl::StrCat(running_, " readers of weights are here already")));
  }
  ++running_;
  return new Session(this);
}

void DeviceSessions::Wait() {
  const auto none = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return running_ == 0; };
  absl::MutexLock lock(&mutex_);
  mutex_.Await(absl::Condition(&none));
}

}  // namespace manta::comm
