// Channels kept from one use to the next: a connection and its handshake cost milliseconds, a call on an open one a few
// hundred microseconds.
//
//   rpc::ChannelCache channels(open_channel);
//   auto channel = channels.Open(address);
//   channels.KeepOnly(addresses);  // the others are closed
//
// A channel whose connection failed is opened anew: nobody waits out the back-off of an earlier failure. Thread-safe.
// What Open returns is owned together with the cache.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "grpcpp/channel.h"

namespace manta::rpc {

class ChannelCache {
 public:
  using Opener = std::function<absl::StatusOr<std::shared_ptr<grpc::Channel>>(const std::string& address)>;
  explicit ChannelCache(Opener open) : open_(std::move(open)) {}

  // An error is the opener's.
  absl::StatusOr<std::shared_ptr<grpc::Channel>> Open(const std::string& address);
  void KeepOnly(const std::vector<std::string>& addresses);

 private:
  const Opener open_;
  absl::Mutex mutex_;
  std::map<std::string, std::shared_ptr<grpc::Channel>> channels_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace manta::rpc
