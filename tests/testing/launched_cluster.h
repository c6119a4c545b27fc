// A cluster of this machine alone, as `manta launch` makes it: a controller and an agent in the background, in a folder
// of their own under TMPDIR. Not thread-safe, but for stub().
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "manta/v1/cluster.grpc.pb.h"

namespace manta::testing {

class LaunchedCluster {
 public:
  // `bin`: where manta, manta-controller and manta-node are. `tag` is part of the folder's name.
  [[nodiscard]] static absl::StatusOr<std::unique_ptr<LaunchedCluster>> Launch(const std::filesystem::path& bin,
                                                                               const std::string& tag, int cpu_slots);
  ~LaunchedCluster();  // `manta stop --all`; kills what is left, and removes the folder
  LaunchedCluster(const LaunchedCluster&) = delete;
  LaunchedCluster& operator=(const LaunchedCluster&) = delete;

  // From starting the command until it has returned: the agent has joined by then.
  double ready_seconds() const { return ready_seconds_; }
  const std::filesystem::path& dir() const { return dir_; }
  const std::string& token() const { return token_; }
  const std::string& address() const { return address_; }
  v1::ClusterService::Stub* stub() const { return stub_.get(); }
  // One group, and the wait until it is ready.
  [[nodiscard]] absl::StatusOr<v1::GroupReply> CreateGroup(const v1::GroupRequest& request) const;
  [[nodiscard]] absl::Status RemoveGroup(const std::string& role) const;

 private:
  LaunchedCluster() = default;
  // `manta ARGS`, with its output in dir()/manta.log.
  absl::Status Manta(std::vector<std::string> args) const;

  std::filesystem::path bin_, dir_;
  std::string mark_, token_, address_;
  double ready_seconds_ = 0;
  std::unique_ptr<v1::ClusterService::Stub> stub_;
};

}  // namespace manta::testing
