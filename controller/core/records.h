// What the head keeps of nodes, actors, groups, placements and jobs. Internal to controller/core.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "controller/core/core.h"
#include "controller/scheduler/cluster_view.h"
#include "manta/v1/journal.pb.h"

namespace manta::controller::core {

using NodeId = scheduler::NodeIndex;

enum class NodeState : uint8_t {
  kExpected,  // of a row: has not joined this head
  kJoined,
  kSuspect,  // silent
  kLost,     // its actors are dead, or will be when their leases have ended
};

struct Node {
  NodeId id = scheduler::kNoNode;
  std::string name;
  NodeState state = NodeState::kExpected;
  bool draining = false;
  absl::Time drain_until = absl::InfiniteFuture();
  v1::NodeHello hello;   // without `running`
  uint64_t session = 0;  // of the stream; 0: none
  std::shared_ptr<AgentPort> port;
  absl::Time last_beat = absl::InfinitePast();
  absl::Time lost_at = absl::InfinitePast();
  // When what ran on it when it was lost is gone for certain: it has joined again, but may still be occupied.
  absl::Time held_until = absl::InfinitePast();
  std::set<std::pair<std::string, uint64_t>> unwanted;  // run there, and nobody knows them: told to end
  std::string why_lost;

  bool alive() const { return state == NodeState::kJoined || state == NodeState::kSuspect; }
};

enum class ActorPhase : uint8_t {
  kPlaced,    // nothing was sent yet
  kStarting,  // its start is sent, or on its way
  kReady,
  kStopping,  // told to end
  kUnknown,   // of a row that says it was ready: its agent has not been heard of yet
  kGone,      // no process of this epoch
};

// One rank. Thousands of them: no names here that follow from the group's.
struct Actor {
  uint64_t epoch = 0;
  uint64_t agent = 0;  // incarnation of the agent that it was started by
  scheduler::PlacedRank place;
  ActorPhase phase = ActorPhase::kPlaced;
  bool failed = false;     // ended, or was given up, without having been asked to end
  bool replacing = false;  // to be started again by itself (REPLACE_ONE)
  bool done = false;       // a plain program that has ended well
  bool beats = false;      // has sent a beat
  bool was_ready = false;  // in this epoch
  uint32_t running = 0;    // calls
  int64_t pid = 0;
  int64_t step = -1;
  uint64_t queued = 0, completed = 0, resident = 0, refused = 0;
  absl::Time last_beat, last_progress;
  absl::Time stop_until = absl::InfiniteFuture();     // told to end: by then it should have; then it is told again
  absl::Time start_until = absl::InfiniteFuture();    // to be ready
  absl::Time gone_at = absl::InfiniteFuture();        // its node is lost: its lease has ended by then
  absl::Time backoff_until = absl::InfiniteFuture();  // to be started again (REPLACE_ONE)
  std::string address;
  std::vector<int32_t> ports;
  absl::Status died;

  bool gone() const { return phase == ActorPhase::kGone; }
  // May there be a process?
  bool may_run() const { return phase != ActorPhase::kGone && phase != ActorPhase::kPlaced; }
};

enum class GroupState : uint8_t {
  kQueued,    // waits for its placement
  kLeasing,   // ... for ports
  kStarting,  // ... for its ranks
  kReady,
  kFailed,      // broken; what is left runs until it is removed
  kRestarting,  // ends its processes, to start them again
  kBackoff,
  kRemoving,
};
const char* Name(GroupState state);

struct Group {
  GroupKey key;
  uint64_t serial = 0;  // of this record: what is posted names it
  v1::GroupRequest request;
  GroupState state = GroupState::kQueued;
  uint64_t epoch = 0;
  uint64_t placement = 0;     // its record's id; 0: none
  bool own_placement = true;  // goes with the group
  std::vector<Actor> ranks;
  int restarts = 0;
  bool was_ready = false;  // in this epoch
  bool ever_ready = false;
  bool journalled = false;
  bool adopted = false;  // found again by this head
  bool planned = false;  // restarts because its node is drained
  bool move_tried = false;
  absl::Status failure;  // the first reason, until it is ready again
  absl::Time ready_since;
  absl::Time backoff_until = absl::InfiniteFuture();
  absl::Time stacks_until = absl::InfiniteFuture();  // hangs: stacks are asked for
  std::string waits_for;
  std::deque<std::string> history;                               // the last few lines of what became of it
  std::vector<std::pair<Answer<v1::GroupReply>, bool>> waiting;  // (answer, adopted)
  std::vector<Answer<v1::Done>> removal;
  absl::Time removal_until = absl::InfiniteFuture();

  bool AllGone() const {
    for (const Actor& rank : ranks) {
      if (rank.may_run()) return false;
    }
    return true;
  }
  bool AllDone() const {
    for (const Actor& rank : ranks) {
      if (!rank.done) return false;
    }
    return !ranks.empty();
  }
};

struct Placement {
  uint64_t id = 0;
  v1::PlacementRequest request;
  std::vector<scheduler::PlacedRank> ranks;
  std::vector<bool> holds;  // which of them are counted as taken in the view
  bool placed = false;      // `ranks` says where
  bool explicit_ = false;   // asked for by itself, journalled by itself
  std::optional<GroupKey> user;
  uint64_t arrival = 0;
  absl::Time deadline = absl::InfiniteFuture();
  absl::Duration patience;
  bool waits_for_nodes = false;  // what is impossible now is waited for as well (restarts: a node may come back)
  std::string waits_for;
  std::vector<Answer<v1::PlacementReply>> answers;
};

struct Job {
  std::string id;
  v1::SubmitRequest request;
  std::string state = "RUNNING";  // STOPPING (asked to, or its code has returned), ENDED
  bool returned = false;          // its code has
  bool local = false;             // of this process: not journalled
  uint64_t arrival = 0;
  int64_t step = 0, num_steps = 0;
  int64_t submitted_unix_ms = 0;
  int head_restarts = 0;
  int worker_restarts = 0;
  std::deque<std::string> history;  // the last of them, and why
  std::set<std::string> done;  // roles of plain programs that have all ended well
  absl::Status status;
  std::vector<Answer<v1::Done>> stopped;
};

// "train-0"; "JOB/train-0" where the job is not the only one.
std::string ActorId(const GroupKey& key, int rank);
// What callers' fences name: an actor's id without its rank.
std::string GroupName(const GroupKey& key);
// The reverse of ActorId; none where it is no actor's id.
std::optional<std::pair<GroupKey, int>> ParseActorId(const std::string& actor_id);

}  // namespace manta::controller::core
