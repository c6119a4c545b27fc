// Group: actors that were placed and started together, and end together; a trainer's ranks, a set of generators.
//
// Made by JobCluster::StartGroup, ready to be called. Use its token for every call to its actors: as soon as one of them
// is known to be dead the token is cancelled with a status that says who died, how, and its last lines, and so does the
// call. Belongs to the controller's loop.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/base/task.h"
#include "grpcpp/channel.h"

namespace manta::controller {

// One rank as its callers see it.
struct GroupMember {
  std::string actor_id;  // "train-0"
  int rank = 0;
  std::string node;
  std::string host_id;  // equal for actors that can share memory
  std::string address;  // host:port
  int64_t pid = 0;
  std::vector<int> gpu_indices;  // on its node
  std::shared_ptr<grpc::Channel> channel;
  std::vector<int> ports;  // leased for it, on its node
};

class Group {
 public:
  Group(std::string role, uint64_t epoch) : role_(std::move(role)), epoch_(epoch) {}

  const std::string& role() const { return role_; }
  uint64_t epoch() const { return epoch_; }
  const std::vector<GroupMember>& members() const { return members_; }  // in order of rank
  // It was there before this controller: its actors have a state of their own.
  bool adopted() const { return adopted_; }
  // Cancelled when a member dies, and when the group is stopped.
  CancelToken token() const { return ended_.token(); }
  // OK while all members are there.
  absl::Status health() const { return ended_.token().status(); }

  std::vector<std::shared_ptr<grpc::Channel>> channels() const {
    std::vector<std::shared_ptr<grpc::Channel>> channels;
    for (const GroupMember& member : members_) channels.push_back(member.channel);
    return channels;
  }
  std::vector<std::string> addresses() const {
    std::vector<std::string> addresses;
    for (const GroupMember& member : members_) addresses.push_back(member.address);
    return addresses;
  }

 private:
  friend class JobCluster;
  const std::string role_;
  const uint64_t epoch_;
  std::vector<GroupMember> members_;
  bool adopted_ = false;
  CancelSource ended_;
};

}  // namespace manta::controller
