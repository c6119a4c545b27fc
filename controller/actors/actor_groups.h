// ActorGroups: the groups of a configuration's tree `actors`, as part of a job: started together, told of in the run's
// events, and ended with the job (but for detached ones).
//
//   MANTA_CO_ASSIGN_OR_RETURN(auto groups, co_await ActorGroups::Start(context, config.actors));
//   co_return co_await groups->WaitEnded(context.stop);     // where the job is nothing else
//
// After a restart of the controller, Start of the same groups finds those that run, and those that have ended well.
// Belongs to the loop; the cluster and the events of the context outlive it.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/task.h"
#include "common/config/actor_config.h"
#include "controller/cluster/run_context.h"
#include "manta/v1/cluster.pb.h"

namespace manta::controller {

// What the head is asked for. `job` names it for clients that have no other name.
v1::GroupRequest GroupRequestOf(const config::ActorGroupConfig& group, const std::string& job);

class ActorGroups {
 public:
  // Ready when every rank of every group is; the first error where one cannot be (nothing of that group is left then).
  [[nodiscard]] static Task<absl::StatusOr<std::shared_ptr<ActorGroups>>> Start(
      RunContext context, std::vector<config::ActorGroupConfig> groups);

  // OK once every group that is not detached has ended by itself: plain programs with code 0. The token's status where
  // it is cancelled before (a group has failed, or the job is stopped).
  [[nodiscard]] Task<absl::Status> WaitEnded(CancelToken stop);

 private:
  struct State;
  explicit ActorGroups(std::shared_ptr<State> state) : state_(std::move(state)) {}
  static Task<absl::Status> StartOne(std::shared_ptr<State> state, v1::GroupRequest request);
  static void OnEvent(const std::shared_ptr<State>& state, const core::GroupEvent& event);
  std::shared_ptr<State> state_;
};

}  // namespace manta::controller
