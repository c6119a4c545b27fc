#include "common/rpc/channel_cache.h"

#include <algorithm>

#include "common/base/status.h"

namespace manta::rpc {

absl::StatusOr<std::shared_ptr<grpc::Channel>> ChannelCache::Open(const std::string& address) {
  absl::MutexLock lock(&mutex_);
  std::shared_ptr<grpc::Channel>& channel = channels_[address];
  const bool usable = channel != nullptr && channel->GetState(/*try_to_connect=*/false) < GRPC_CHANNEL_TRANSIENT_FAILURE;
  if (!usable) {
    absl::StatusOr<std::shared_ptr<grpc::Channel>> opened = open_(address);
    if (!opened.ok()) {
      channels_.erase(address);
      return opened.status();
    }
    channel = *std::move(opened);
  }
  return channel;
}

void ChannelCache::KeepOnly(const std::vector<std::string>& addresses) {
  absl::MutexLock lock(&mutex_);
  for (auto it = channels_.begin(); it != channels_.end();) {
    const bool kept = std::find(addresses.begin(), addresses.end(), it->first) != addresses.end();
    it = kept ? std::next(it) : channels_.erase(it);
  }
}

}  // namespace manta::rpc
