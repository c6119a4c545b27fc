// Cluster: the nodes that have joined, the actors on them, and what becomes of both.
//
//   GroupSpec spec{.role = "train", .num_ranks = 2, .executable = bin_dir / "manta-train", .cpu_slots_per_rank = 1};
//   MANTA_CO_ASSIGN_OR_RETURN(std::shared_ptr<Group> trainers, co_await cluster.StartGroup(spec));
//   auto stub = v1::TrainerService::NewStub(trainers->members()[0].channel);
//   auto reply = co_await rpc::Call(loop, stub->async(), &rpc::AsyncOf<v1::TrainerService>::Configure, request,
//                                   {.deadline = absl::Minutes(5), .cancel = trainers->token()});
//   co_await cluster.StopAll(absl::Seconds(2));
//
// Placement is atomic: all ranks of a group or none. What could never be placed on the nodes that are there fails at
// once and says what is missing; what only has to wait for others to end waits until its deadline. A group is the unit
// of failure: when one of its processes ends without being asked to, or falls silent, the other ranks are told
// (PeerLost), the group's token is cancelled with the reason, and OnGroupFailed is called; its other processes run
// until StopGroup. Epochs fence: an announcement of an actor that is not expected in that epoch is refused, and its
// process ends.
//
// State belongs to the loop's thread alone. Transport is behind NodeLink and ActorPort (ports.h), the clock is the
// loop's: tests run this very code against fake nodes in simulated time.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/event_loop.h"
#include "common/base/task.h"
#include "controller/cluster/group.h"
#include "controller/cluster/ports.h"
#include "manta/v1/actor.pb.h"
#include "manta/v1/controller.pb.h"
#include "manta/v1/node.pb.h"

namespace manta::controller {

struct GroupSpec {
  std::string role;  // letters, digits and '_'; its actors are called ROLE-RANK
  int num_ranks = 1;
  std::string executable;  // a path on every node
  std::vector<std::string> args;
  std::map<std::string, std::string> env;  // beside the agent's own environment
  int cpu_slots_per_rank = 0;
  int gpus_per_rank = 0;
  bool shares_gpu = false;  // ranks that hold no GPU see one of their node's beside whoever holds it
  absl::Duration placement_deadline = absl::Seconds(30);
  absl::Duration start_deadline = absl::Seconds(60);  // from the start command to the announcement
};

class Cluster {
 public:
  struct Options {
    std::string run_dir;                                 // logs/<role>-<rank>.log lie below it
    std::string controller_address;                      // what workers announce themselves to
    std::string token_file;                              // ... and with
    int expected_nodes = 1;                              // until these have joined, missing slots are waited for
    absl::Duration node_beat = absl::Seconds(1);         // how often an agent beats
    absl::Duration node_timeout = absl::Seconds(8);      // an agent silent for longer is lost, and its actors with it
    absl::Duration actor_timeout = absl::Seconds(10);    // an actor silent for longer is dead, and is killed
    absl::Duration exit_report_wait = absl::Seconds(2);  // how long a broken connection waits for the agent's reason
  };
  Cluster(EventLoop& loop, ActorPort& actors, Options options);
  ~Cluster();
  Cluster(const Cluster&) = delete;
  Cluster& operator=(const Cluster&) = delete;
  // Once the controller listens, and before any group is started.
  void set_controller_address(const std::string& address);

  // ---- What algorithms use
  // -------------------------------------------------------------------------------------------- Ready when every rank
  // has announced itself. Errors: FAILED_PRECONDITION (never placeable), DEADLINE_EXCEEDED (not placed or not started
  // in time), UNAVAILABLE (a process ended while starting: with its exit and last lines), ALREADY_EXISTS (a group of
  // that role is there). On an error, nothing of the group is left running.
  Task<absl::StatusOr<std::shared_ptr<Group>>> StartGroup(GroupSpec spec);
  // Ends the group's processes (SIGTERM, SIGKILL after `grace`) and waits until the agents say that they are gone.
  Task<absl::Status> StopGroup(std::shared_ptr<Group> group, absl::Duration grace);
  // Every group; afterwards the agents are told to end. Nothing can be started any more.
  Task<absl::Status> StopAll(absl::Duration grace);
  // Called on the loop once for each group that fails after it was ready.
  void OnGroupFailed(std::function<void(const Group&, const absl::Status&)> callback);
  // Why a call to an actor failed, where a broken connection alone does not say: waits a moment (exit_report_wait) for
  // the report of the process's end, and gives that. Other errors, and ones that nothing better is known of, come back
  // as they are.
  Task<absl::Status> Explain(absl::Status status);
  // Waits until `count` nodes have joined.
  Task<absl::Status> WaitForNodes(int count, absl::Duration deadline);

  int free_cpu_slots() const;
  int num_gpus() const;  // registered, on live nodes
  void FillStatus(v1::GetStatusReply* reply) const;

  // ---- What transports call, on the loop
  // ------------------------------------------------------------------------------ An agent joins. An error (a name
  // that is taken, no name) refuses it; its link is then to be closed.
  absl::Status NodeJoined(const v1::NodeHello& hello, std::shared_ptr<NodeLink> link);
  void NodeEvent(const std::string& node, const v1::NodeEvent& event);
  // The agent's stream has ended.
  void NodeGone(const std::string& node, const std::string& reason);
  // PERMISSION_DENIED for an epoch or actor that is not expected.
  absl::Status Announce(const v1::AnnounceRequest& request);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace manta::controller
