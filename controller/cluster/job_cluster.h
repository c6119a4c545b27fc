// JobCluster: what an algorithm sees of the cluster: groups of actors that it starts, calls and stops.
//
//   GroupSpec spec{.role = "train", .num_ranks = 2, .executable = bin_dir / "manta-train", .cpu_slots_per_rank = 1};
//   MANTA_CO_ASSIGN_OR_RETURN(std::shared_ptr<Group> trainers, co_await cluster.StartGroup(spec));
//   auto stub = v1::TrainerService::NewStub(trainers->members()[0].channel);
//   auto reply = co_await rpc::Call(loop, stub->async(), &rpc::AsyncOf<v1::TrainerService>::Configure, request,
//                                   {.deadline = absl::Minutes(5), .cancel = trainers->token()});
//   co_await cluster.StopAll(absl::Seconds(2));
//
// One job's view of the head's core (controller/core), which does the work: placement of all ranks of a group or none,
// epochs, the journal. A group that the job had before the head was started again is found, not started: StartGroup of
// the same spec gives it back with `adopted()`. When a process of a group ends without being asked to, or falls silent,
// the group's token is cancelled with the reason, and OnGroupFailed is called; what is left of it runs until StopGroup.
//
// Belongs to the loop's thread. The core and the loop outlive it.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/event_loop.h"
#include "common/base/task.h"
#include "controller/cluster/group.h"
#include "controller/cluster/group_spec.h"
#include "controller/core/core.h"
#include "manta/v1/controller.pb.h"

namespace manta::controller {

class JobCluster {
 public:
  struct Options {
    std::string job = core::kOnlyJob;  // its actors are called "train-0"; those of others "JOB/train-0"
    // A channel to an actor's address, with the job's credentials. May be null where nobody calls.
    std::function<std::shared_ptr<grpc::Channel>(const std::string& address)> connect;
    absl::Duration exit_report_wait = absl::Seconds(2);  // how long a broken call waits for the agent's reason
    // Of jobs that wait for one another on a shared cluster: how long room is waited for at least, whatever the spec
    // says. The impossible fails at once all the same.
    absl::Duration queue_patience;
  };
  JobCluster(EventLoop& loop, core::Core& core, Options options);
  ~JobCluster();
  JobCluster(const JobCluster&) = delete;
  JobCluster& operator=(const JobCluster&) = delete;

  // Ready when every rank has announced itself. Errors: FAILED_PRECONDITION (never placeable), DEADLINE_EXCEEDED (not
  // placed or not started in time), UNAVAILABLE (a process ended while starting: with its exit and last lines),
  // ALREADY_EXISTS (a group of that role is there). On an error, nothing of the group is left running.
  Task<absl::StatusOr<std::shared_ptr<Group>>> StartGroup(GroupSpec spec);
  // The same of a request with everything in it that cluster.proto knows (the job is filled in). A group of plain
  // programs that have ended in an earlier life of the job has no members. A detached group is left by StopAll.
  Task<absl::StatusOr<std::shared_ptr<Group>>> StartGroup(v1::GroupRequest request);
  // Ends the group's processes (SIGTERM, SIGKILL after `grace`) and waits until the agents say that they are gone.
  Task<absl::Status> StopGroup(std::shared_ptr<Group> group, absl::Duration grace);
  // Groups of this job that are there, an earlier controller's among them: StartGroup with their spec takes them over as
  // they are (Group::adopted). Ended ones, and those that outlive the job, are not named.
  std::vector<std::string> Roles() const;
  // Ends those of them, and waits for it up to `patience`: agents may have to come back first. New ones may be started
  // then.
  Task<absl::Status> EndGroups(std::vector<std::string> roles, absl::Duration grace, absl::Duration patience);
  // A group that this view has, with all its members; null where it has none, or one of them has died.
  std::shared_ptr<Group> Find(const std::string& role) const;
  // What becomes of the job when one of these groups fails is the algorithm's to say: it sees it by the group's token,
  // and OnGroupFailed is not called.
  void HandleFailuresOf(const std::vector<std::string>& roles);
  // The algorithm starts workers again, one having died: counted for those who look at the job.
  void CountRestart(const std::string& why) { core_.JobRestarts(options_.job, why); }
  // What a group of this job waits for; empty: none does.
  std::string WaitsFor() const;
  // Every group of this job. Nothing can be started any more. The agents stay: they are told by core::Shutdown.
  Task<absl::Status> StopAll(absl::Duration grace);
  // Called on the loop once for each group that fails after it was ready.
  void OnGroupFailed(std::function<void(const Group&, const absl::Status&)> callback);
  // Hears everything that happens to this job's groups, restarts and ends by themselves too. On the loop.
  void OnGroupEvent(std::function<void(const core::GroupEvent&)> callback);
  // Why a call to an actor failed, where a broken connection alone does not say: waits a moment (exit_report_wait) for
  // the report of the process's end, and gives that. Other errors, and ones that nothing better is known of, come back
  // as they are.
  Task<absl::Status> Explain(absl::Status status);
  // Waits until `count` nodes have joined.
  Task<absl::Status> WaitForNodes(int count, absl::Duration deadline);

  // Of the job's group of that role; 0 where there is none.
  int RanksOf(const std::string& role) const;

  int free_cpu_slots() const;
  int num_gpus() const;  // registered, on live nodes
  struct NodeGpus {
    std::string name;
    int gpus = 0;
  };
  std::vector<NodeGpus> nodes() const;  // those that are there, by name
  void FillStatus(v1::GetStatusReply* reply) const;
  const std::string& job() const { return options_.job; }

 private:
  struct Entry {
    std::shared_ptr<Group> group;  // once it is ready
    absl::Status failure;
    bool stopping = false, detached = false;
  };
  v1::GroupRequest RequestOf(const GroupSpec& spec) const;
  void OnEvent(const core::GroupEvent& event);
  Task<absl::Status> Remove(std::string role, absl::Duration grace);
  Task<bool> AwaitFailure(absl::Time until);

  EventLoop& loop_;
  core::Core& core_;
  const Options options_;
  std::map<std::string, std::shared_ptr<Entry>> groups_;  // by role
  std::function<void(const Group&, const absl::Status&)> on_group_failed_;
  std::function<void(const core::GroupEvent&)> on_group_event_;
  std::set<std::string> handled_;  // roles
  absl::Status first_failure_;
  std::string first_failed_;  // its role
  std::vector<OneShot<bool>> failure_waiters_;
  bool stopping_ = false;
  core::Subscription events_;
};

}  // namespace manta::controller
