// ClusterResolver: where actors are and why they died, as the head tells it (ClusterService.Resolve). A name that was
// asked for once is followed from then on: what is asked later is answered from memory, a change is known as soon as
// the head has sent it. A head that is away costs nothing but news: what was known stays known, and it is looked for
// until it is back.
//
// An actor that the head reports dead has its calls ended at once, with the reason (CallClient::FailActor): nobody
// waits for a network that may never answer.
//
// Thread-safe. Its streams are events of the client's own queue, so that it needs no thread. Bounded: the name that was
// longest not asked for is dropped for a new one. Belongs to a CallClient, which must outlive it; Shutdown comes first.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "common/actor/client.h"
#include "common/call/call_client.h"

namespace manta::actor {

class ClusterResolver final : public Resolver {
 public:
  struct Options {
    std::function<std::string()> head;  // HOST:PORT, asked at each attempt: a head that starts again may move
    std::string token;
    size_t max_names = 1024;
  };
  ClusterResolver(call::CallClient* calls, Options options);
  ~ClusterResolver() override;

  // Waits where a rank is not ready, or no such name is known yet: NOT_FOUND, or DEADLINE_EXCEEDED with the last reason
  // why not, after `timeout`. Fails at once where the group has failed for good or is gone.
  void Resolve(const std::string& name, absl::Duration timeout,
               absl::AnyInvocable<void(absl::StatusOr<std::vector<ActorAddress>>)> then) override;
  // Not answered with that address until the head has said something new of the actor, or for half a second.
  void Lost(const std::string& name, const ActorAddress& actor) override;
  void Explain(const ActorAddress& actor, const absl::Status& status, absl::Duration timeout,
               absl::AnyInvocable<void(absl::Status)> then) override;
  // Ends the streams; who waits is told CANCELLED.
  void Shutdown();

 private:
  class Impl;
  const std::shared_ptr<Impl> impl_;
};

}  // namespace manta::actor
