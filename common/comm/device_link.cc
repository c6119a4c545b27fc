#include "common/comm/device_link.h"

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/status.h"
#include "common/rpc/status.h"

namespace manta::comm {

DeviceLink::DeviceLink(std::string address, std::shared_ptr<grpc::Channel> channel)
    : address_(std::move(address)), stub_(v1::WeightSource::NewStub(channel)) {
  stream_ = stub_->Connect(&context_);
  thread_ = std::thread([this] { ReadAll(); });
}

DeviceLink::~DeviceLink() {
  context_.TryCancel();
  thread_.join();
}

void DeviceLink::ReadAll() {
  v1::DeviceReply reply;
  while (stream_->Read(&reply)) {
    absl::MutexLock lock(&mutex_);
    replies_.push_back(std::move(reply));
  }
  absl::Status status = rpc::FromGrpc(stream_->Finish());
  if (status.ok()) status = absl::UnavailableError("it ended the session");
  absl::MutexLock lock(&mutex_);
  ended_ = Annotated(status);
}

absl::Status DeviceLink::Annotated(const absl::Status& status) const {
  return status.ok() ? status : Annotate(status, absl::StrCat("weight source ", address_));
}

absl::Status DeviceLink::Check() const {
  absl::MutexLock lock(&mutex_);
  if (!replies_.empty() && replies_.front().status().code() != 0)
    return Annotated(FromProto(replies_.front().status()));
  return ended_;
}

absl::Status DeviceLink::Send(const v1::DeviceRequest& request) {
  MANTA_RETURN_IF_ERROR(Check());
  if (stream_->Write(request)) return absl::OkStatus();
  // Why it ended is a moment away, with the reading thread.
  const auto ended = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return !ended_.ok(); };
  absl::MutexLock lock(&mutex_);
  if (mutex_.AwaitWithTimeout(absl::Condition(&ended), absl::Seconds(5))) return ended_;
  return Annotated(absl::UnavailableError("it takes no more requests"));
}

absl::StatusOr<v1::DeviceReply> DeviceLink::Receive(v1::DeviceReply::KindCase kind, absl::Time deadline) {
  const auto ready = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return !replies_.empty() || !ended_.ok(); };
  absl::MutexLock lock(&mutex_);
  if (!mutex_.AwaitWithDeadline(absl::Condition(&ready), deadline)) {
    return Annotated(absl::DeadlineExceededError("it did not answer in time"));
  }
  if (replies_.empty()) return ended_;
  v1::DeviceReply reply = std::move(replies_.front());
  replies_.pop_front();
  if (reply.status().code() != 0) return Annotated(FromProto(reply.status()));
  if (reply.kind_case() != kind) return Annotated(absl::InternalError("it answered something else than it was asked"));
  return reply;
}

}  // namespace manta::comm
