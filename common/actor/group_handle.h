// GroupHandle: calls to all ranks of a group at once. Results are in rank order. The first failure ends the whole: the
// other ranks' calls are cancelled, and its error, with the rank before its message and in its ErrorInfo, is what the
// caller gets.
//
//   actor::GroupHandle group = client->Group("train", absl::Seconds(10)).value();
//   absl::StatusOr<std::vector<Loss>> losses = group.Broadcast<StepRequest, Loss>("step", request, {.deadline = ...});
//   group.Scatter<Shard, Done>("load", shards, options);   // a request a rank
//   group.rank(0).CallBlocking<...>(...);                  // one of them
//
// A value; thread-safe. Blocking, like ActorHandle's blocking calls.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/actor/client.h"

namespace manta::actor {

class GroupHandle {
 public:
  explicit GroupHandle(std::vector<ActorHandle> ranks) : ranks_(std::move(ranks)) {}
  int size() const { return static_cast<int>(ranks_.size()); }
  const ActorHandle& rank(int rank) const { return ranks_.at(rank); }

  // One argument for all, or one a rank (INVALID_ARGUMENT where their number is another).
  absl::StatusOr<std::vector<std::string>> CallBytes(const std::string& method, std::vector<std::string> arguments,
                                                     const CallOptions& options) const;

  template <typename Request, typename Reply>
  absl::StatusOr<std::vector<Reply>> Broadcast(const std::string& method, const Request& request,
                                               const CallOptions& options) const {
    return Parse<Reply>(CallBytes(method, {internal::Serialize(request)}, options));
  }
  template <typename Request, typename Reply>
  absl::StatusOr<std::vector<Reply>> Scatter(const std::string& method, const std::vector<Request>& requests,
                                             const CallOptions& options) const {
    if (requests.size() != ranks_.size()) return WrongNumber(requests.size());
    std::vector<std::string> arguments;
    for (const Request& request : requests) arguments.push_back(internal::Serialize(request));
    return Parse<Reply>(CallBytes(method, std::move(arguments), options));
  }

 private:
  template <typename Reply>
  static absl::StatusOr<std::vector<Reply>> Parse(absl::StatusOr<std::vector<std::string>> bytes) {
    if (!bytes.ok()) return bytes.status();
    std::vector<Reply> replies(bytes->size());
    for (size_t i = 0; i < replies.size(); ++i) {
      if (absl::Status parsed = internal::ParseReply((*bytes)[i], &replies[i]); !parsed.ok()) return parsed;
    }
    return replies;
  }
  absl::Status WrongNumber(size_t arguments) const;

  std::vector<ActorHandle> ranks_;
};

}  // namespace manta::actor
