#include "controller/cli/channels.h"

#include <mutex>
#include <vector>

#include "common/base/status.h"
#include "common/rpc/channel.h"
#include "common/rpc/tls.h"

namespace manta::cli {

absl::StatusOr<std::shared_ptr<grpc::Channel>> OpenLastingChannel(const std::string& address, const std::string& token) {
  MANTA_ASSIGN_OR_RETURN(std::shared_ptr<grpc::Channel> channel, rpc::OpenChannel(address, token));
  static std::mutex& mutex = *new std::mutex();
  static auto& kept = *new std::vector<std::shared_ptr<grpc::Channel>>();
  std::lock_guard lock(mutex);
  kept.push_back(channel);
  return channel;
}

absl::Status UseCertificates() {
  absl::Status status;
  for (const v1::Role role : {v1::ROLE_ADMIN, v1::ROLE_NODE, v1::ROLE_READER}) {
    status = rpc::UseTlsFromEnvironment("", role);
    if (!absl::IsNotFound(status)) break;
  }
  return status;
}

}  // namespace manta::cli
