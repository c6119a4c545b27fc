// Core: the whole of the head's logic as one object: nodes and their leases, placements and the queue for them, groups
// of actors with their epochs and restarts, jobs, names, and what is journalled of it all.
//
//   Core core(loop, journal, jobs, {.incarnation = 7, .run_dir = "..."}, std::move(rows));
//   uint64_t session = core.NodeJoined(hello, port).value();           // an agent's stream
//   core.OnNodeEvent(session, event);
//   core.CreateGroup(request, [](absl::StatusOr<v1::GroupReply> reply) { ... });
//
// Two rules hold everywhere. What leaves the head (answers, and commands that change something) leaves after the
// journal's rows that it follows from are durable, in the order in which it was made; beats' acknowledgements, logs and
// what is only read do not wait. And what is numbered in this head's life (epochs, fences, ids) carries the head's
// incarnation in its upper 32 bits, so that no number is given out twice whatever the journal has lost.
//
// Belongs to its loop's thread. No gRPC, no files and no clock but the loop's: the simulator (tests/sim) runs this very
// code. Failures come back as statuses that say what is missing or who died (v1::ErrorInfo); nothing here waits without
// a bound. Destroying it drops what has not been answered.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/event_loop.h"
#include "controller/core/ports.h"
#include "manta/v1/cluster.pb.h"
#include "manta/v1/node.pb.h"

namespace manta::controller::core {

struct CoreOptions {
  uint64_t incarnation = 1;             // of the head: higher than any before on this journal, and durable
  std::string run_dir;                  // logs/<role>-<rank>.log lie below it
  std::string worker_token;             // in the welcome, for what agents write down for their workers
  int expected_nodes = 0;               // until so many have joined, what is missing is waited for
  bool wait_on_controller_loss = true;  // agents keep their workers when this head is gone (on_controller_loss: wait)
  absl::Duration node_beat = absl::Seconds(1);
  absl::Duration node_suspect = absl::Seconds(3);    // silent for so long: nothing new is placed there
  absl::Duration node_timeout = absl::Seconds(8);    // ... lost; also the lease that a beat's acknowledgement renews
  absl::Duration fence_margin = absl::Seconds(2);    // after node_timeout, for the shims to have ended what they hold
  absl::Duration actor_timeout = absl::Seconds(10);  // a worker that has beaten and is silent for longer is dead
  absl::Duration agent_grace = absl::Seconds(10);
  absl::Duration controller_grace = absl::Minutes(10);  // how long agents go on without a head
  absl::Duration recovery = absl::Seconds(10);          // after a start with rows: for agents to come back
  absl::Duration stop_slack = absl::Seconds(3);         // beyond a grace: for SIGKILL, and the agent to say so
  uint64_t seed = 0;                                    // of back-off's jitter
  std::function<int64_t()> unix_ms;                     // for what is shown and kept; null: 0
  // The agent's own last lines, where this host has them; may be null.
  std::function<std::vector<std::string>(const std::string& node)> node_last_lines;
  // Deliberately broken builds, for tests that must notice: "no_fencing", "ack_before_commit", "free_slot_early".
  std::string fault;
};

// The job of a process that has but one: its actors are called "train-0" instead of "JOB/train-0".
inline constexpr char kOnlyJob[] = "run";

struct GroupKey {
  std::string job;
  std::string role;
  bool operator<(const GroupKey& other) const { return std::tie(job, role) < std::tie(other.job, other.role); }
  bool operator==(const GroupKey&) const = default;
  std::string Name() const { return job + "/" + role; }
};

// A group's life, as those see it who hold it.
struct GroupEvent {
  enum Kind {
    kReady,   // every rank answers; `reply` says where. Also after a restart, and when a new head has found it again
    kFailed,  // it does not work any more: `status` names who died, on which node, and the last lines
    kRestarting,  // a policy brings it back: `status` is why; kReady or kFailed follows
    kEnded,       // removed, nothing of it runs
  } kind;
  GroupKey key;
  v1::GroupReply reply;
  absl::Status status;
};

// Unregisters its callback when destroyed.
class Subscription {
 public:
  Subscription() = default;
  explicit Subscription(std::function<void()> end) : end_(std::move(end)) {}
  Subscription(Subscription&& other) noexcept : end_(std::exchange(other.end_, nullptr)) {}
  Subscription& operator=(Subscription&& other) noexcept {
    if (this != &other) {
      Reset();
      end_ = std::exchange(other.end_, nullptr);
    }
    return *this;
  }
  ~Subscription() { Reset(); }
  void Reset() {
    if (auto end = std::exchange(end_, nullptr)) end();
  }

 private:
  std::function<void()> end_;
};

class Core {
 public:
  // `rows`: what the journal holds. `jobs` may be null where no job is ever submitted. Both and the loop must outlive
  // the core.
  Core(EventLoop& loop, Journal& journal, JobPort* jobs, CoreOptions options, std::vector<JournalEntry> rows);
  ~Core();
  Core(const Core&) = delete;
  Core& operator=(const Core&) = delete;

  // ---- Agents. A session is one stream of one agent; its welcome is sent before this returns.
  // Refusals: INVALID_ARGUMENT (no name, a GPU index that cannot be), ALREADY_EXISTS (an agent of that name and of
  // another lineage is there and alive), ABORTED (a later hello of this agent has come already), UNAVAILABLE (the
  // cluster is stopping). The port is then to be closed.
  absl::StatusOr<uint64_t> NodeJoined(const v1::NodeHello& hello, std::shared_ptr<AgentPort> port);
  void OnNodeEvent(uint64_t session, const v1::NodeEvent& event);
  // The stream has ended: no loss yet, the agent has until node_timeout after its last beat to come back.
  // `left`: it said that it ends, or its end was seen: lost at once.
  void NodeDisconnected(uint64_t session, const absl::Status& why, bool left = false);

  // ---- Requests (cluster.proto has the fields). Those that change something are refused with the journal's error
  // while it has one.
  void CreatePlacement(v1::PlacementRequest request, Answer<v1::PlacementReply> answer);
  void RemovePlacement(uint64_t id, Answer<v1::Done> answer);
  // Answers when every rank is ready, or with what went wrong; then nothing of the group is left. The request of a
  // group that is there answers with it (`adopted`); another request under its name is ALREADY_EXISTS.
  void CreateGroup(v1::GroupRequest request, Answer<v1::GroupReply> answer);
  // Answers when no process of it is left, or DEADLINE_EXCEEDED after grace + stop_slack. None there: OK.
  void RemoveGroup(GroupKey key, absl::Duration grace, Answer<v1::Done> answer);
  // Every group; then the agents are told to end. Nothing can be started any more.
  void Shutdown(absl::Duration grace, std::string reason, Answer<v1::Done> answer);
  // OK as soon as `count` nodes are joined and not lost.
  void WaitNodes(int count, absl::Duration timeout, Answer<v1::Done> answer);
  void Drain(const v1::DrainRequest& request, Answer<v1::Done> answer);

  // ---- Jobs
  void SubmitJob(v1::SubmitRequest request, Answer<v1::JobInfo> answer);
  void StopJob(const std::string& job, const std::string& reason, Answer<v1::Done> answer);  // when it has ended
  void JobProgress(const std::string& job, int64_t step, int64_t num_steps);
  // Its code starts workers again, one of them having died. Counted and kept for those who ask; of a job that this
  // process runs by itself the next one counts from 0.
  void JobRestarts(const std::string& job, const std::string& why);
  // Of its code: its groups that are not detached are removed, then the job is over.
  void JobEnded(const std::string& job, const absl::Status& status);
  // Makes known a job that this process runs by itself (`manta run`): no SubmitJob, no JobPort.
  // `head_restarts`: how often it was taken up again by a later head.
  void AddLocalJob(const std::string& job, const std::string& run_dir, int head_restarts);

  // ---- What is heard and read
  // What is now (where the name is known), then every change. A name is a group's own, else its role's ("ROLE" of
  // kOnlyJob, or "JOB/ROLE"), else an actor's. `failed` is ABORTED where nothing brings the group back, NOT_FOUND where
  // it is gone; else it is being started again.
  Subscription Watch(const v1::ResolveRequest& what, std::function<void(const v1::ResolveReply&)> callback);
  Subscription OnGroupEvent(std::function<void(const GroupEvent&)> callback);
  void List(const v1::ListRequest& request, v1::ListReply* reply) const;
  absl::StatusOr<v1::DescribeReply> Describe(const std::string& what) const;
  int free_cpu_slots() const;  // on nodes that are usable
  int num_gpus() const;        // registered, on nodes that are not lost
  int num_nodes() const;       // joined, not lost
  bool recovering() const;
  // A log's bytes as they come, until `end` or an error (the node is lost); destroying the subscription ends it.
  Subscription ReadLog(const std::string& actor_id, int64_t offset, int64_t max_bytes, bool follow,
                       std::function<void(absl::StatusOr<v1::LogChunk>)> sink);
  // Asks the actors (all, or of a job or role) for their threads' stacks: `sink` once for each, with what its agent has
  // answered, or after `patience` with why there is no answer; then `done`. NOT_FOUND where no such actor runs.
  void Stacks(const v1::ListRequest& which, absl::Duration patience, std::function<void(const v1::StackDump&)> sink,
              absl::AnyInvocable<void(absl::Status)> done);

  // What must always hold, in words; empty if it does. For the simulator and tests.
  std::vector<std::string> CheckInvariants() const;
  // Raised by each change of state: the simulator checks again where it has moved.
  uint64_t version() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace manta::controller::core
