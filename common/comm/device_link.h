// DeviceLink: a reader's end of one WeightSource.Connect session.
//
// A thread of its own reads the replies, so that the other side's death is known at once, whatever the reader is doing:
// Check() turns into an error. Every wait has a time-out. The end of a link is the end of the session: what the source
// has lent is given back, its communicator aborted. Used by one thread, but for Check().
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "grpcpp/channel.h"
#include "manta/v1/weights.grpc.pb.h"

namespace manta::comm {

class DeviceLink {
 public:
  DeviceLink(std::string address, std::shared_ptr<grpc::Channel> channel);
  ~DeviceLink();

  const std::string& address() const { return address_; }

  [[nodiscard]] absl::Status Send(const v1::DeviceRequest& request);
  // The next reply, which must be of the kind given; its status where that is not OK. Errors name the address.
  [[nodiscard]] absl::StatusOr<v1::DeviceReply> Receive(v1::DeviceReply::KindCase kind, absl::Time deadline);
  // The error that the session ended with, or that the next reply brings; OK while it goes on.
  absl::Status Check() const;

 private:
  void ReadAll();
  absl::Status Annotated(const absl::Status& status) const;

  const std::string address_;
  std::unique_ptr<v1::WeightSource::Stub> stub_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::DeviceRequest, v1::DeviceReply>> stream_;
  mutable absl::Mutex mutex_;
  std::deque<v1::DeviceReply> replies_ ABSL_GUARDED_BY(mutex_);
  absl::Status ended_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace manta::comm
