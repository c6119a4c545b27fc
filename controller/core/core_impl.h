// Core's inside. One class because it is one state; its parts lie in files of their own:
//   core_impl.cc   the public face, turns, what is heard       nodes.cc       joins, beats, losses, leases
//   reports.cc     what agents say of actors                   groups.cc      creation, start, end
//   policies.cc    failures, restarts, replacement, watchdog   placements.cc  requests for room and their queue
//   jobs.cc        jobs                                        drain.cc       emptying a node
//   recovery.cc    rows to state and back                      status.cc      lists and descriptions
//   streams.cc     logs and stacks                             invariants.cc  what must always hold
//   starts.cc      ports and start commands                    shutdown.cc    the end of everything
//
// Everything happens on the loop. Closures that come later hold `self_` and the serial of the record that they mean,
// never a pointer to it.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "common/base/random.h"
#include "controller/cluster/death.h"
#include "controller/core/core.h"
#include "controller/core/outbox.h"
#include "controller/core/records.h"
#include "controller/scheduler/queue.h"

namespace manta::controller::core {

class Core::Impl {
 public:
  Impl(EventLoop& loop, Journal& journal, JobPort* jobs, CoreOptions options, std::vector<JournalEntry> rows);
  ~Impl();

  // ---- nodes.cc
  absl::StatusOr<uint64_t> NodeJoined(const v1::NodeHello& hello, std::shared_ptr<AgentPort> port);
  void OnNodeEvent(uint64_t session, const v1::NodeEvent& event);
  void NodeDisconnected(uint64_t session, const absl::Status& why, bool left);
  Node& AddNode(const std::string& name);
  void SendWelcome(Node& node, const v1::NodeHello& hello);
  // What the agent says that it runs against what we think that it does.
  void Reconcile(Node& node, const v1::NodeHello& hello);
  void LoseNode(Node& node, const std::string& why, absl::Time gone_at);
  absl::Time LeaseEnd(const Node& node) const;  // no process of its agent's lives longer
  void HeardOf(Node& node);
  void CheckNodes(absl::Time now);
  void UpdateUsable(Node& node);
  void ForgetNode(Node& node);
  void Tick();
  void WaitNodes(int count, absl::Duration timeout, Answer<v1::Done> answer);
  void CheckNodeWaiters();
  int num_nodes() const;

  // ---- reports.cc
  void OnReport(Node& node, const v1::ActorReport& report);
  void OnExit(Node& node, const v1::ActorExited& exited);
  void OnStartFailed(Node& node, const v1::ActorReport& report);
  void AckEnd(Node& node, const std::string& actor_id, uint64_t epoch);
  void OnWorker(Node& node, const v1::ActorReport& report);
  void OnBeat(Actor& rank, const v1::WorkerBeat& beat);
  void OnReady(Group& group, int rank, int64_t pid, const std::string& address);
  void StopUnknown(Node& node, const std::string& actor_id, uint64_t epoch);
  std::pair<Group*, int> FindActor(const std::string& actor_id, uint64_t epoch, NodeId node);

  // ---- groups.cc
  void CreateGroup(v1::GroupRequest request, Answer<v1::GroupReply> answer);
  absl::Status CheckGroup(const v1::GroupRequest& request) const;
  void GroupPlaced(Group& group);
  void NewEpoch(Group& group);
  void StartRanks(Group& group);
  void StartRank(Group& group, int rank);
  v1::NodeCommand StartCommand(const Group& group, int rank) const;
  void LeasePorts(Group& group);
  void PortsLeased(const v1::PortsLeased& leased);
  void CheckReady(Group& group);
  // Of plain programs: the group goes when all of them have exited with 0 (kEnded follows). Asked for again in the same
  // job, it is answered `adopted` and without ranks.
  void CheckDone(Group& group);
  void StopRank(Group& group, int rank, absl::Duration grace);
  void RankGone(Group& group, int rank);
  void RemoveGroup(const GroupKey& key, absl::Duration grace, Answer<v1::Done> answer);
  // OK: those who wait for it to be ready are told by FinishRemoval.
  void BeginRemoval(Group& group, absl::Duration grace, const absl::Status& told_to_waiting);
  void FinishRemoval(Group& group);
  void AnswerWaiting(Group& group, const absl::Status& status);
  v1::GroupReply ReplyOf(const Group& group) const;
  void SaveGroup(Group& group);
  void SetState(Group& group, GroupState state);
  void Note(Group& group, const std::string& line);
  void SendFences(const Group& group);              // to the job's other actors: of a new epoch
  void SendFencesTo(const Group& group, int rank);  // to one that is ready: of what was restarted before
  void Shutdown(absl::Duration grace, std::string reason, Answer<v1::Done> answer);
  void FinishShutdown();

  // ---- policies.cc
  void RankFailed(Group& group, int rank, const absl::Status& status);
  // The group cannot become ready, or does not work any more, and nothing brings it back.
  void GiveUp(Group& group, const absl::Status& status);
  void ForgetFailedGroups();
  void BeginRestart(Group& group, const absl::Status& why, bool planned);
  void EnterBackoff(Group& group);
  void Restart(Group& group);
  void BeginReplace(Group& group, int rank, const absl::Status& why, bool planned);
  void RankPlaced(Group& group, int rank, scheduler::PlacedRank place);
  void StartReplacement(Group& group, int rank);
  absl::Duration Backoff(const Group& group);
  void CheckActors(absl::Time now);
  void CheckProgress(Group& group, absl::Time now);
  void SendWorkerOrder(const Group& group, int rank, const v1::WorkerOrder& order);

  // ---- placements.cc
  void CreatePlacement(v1::PlacementRequest request, Answer<v1::PlacementReply> answer);
  void RemovePlacement(uint64_t id, Answer<v1::Done> answer);
  Placement& AddPlacement(v1::PlacementRequest request);
  void Enqueue(Placement& placement);
  void SchedulePass();
  void Placed(Placement& placement, scheduler::Placement places);
  void PlacementRefused(Placement& placement, const absl::Status& status);
  void PlacementDue(uint64_t id);
  bool FinallyImpossible(const Placement& placement) const;
  std::string WithExpected(const absl::Status& status) const;
  void Release(Placement& placement);  // gives back what it holds
  void ReleaseRank(Placement& placement, int rank);
  void DropPlacement(uint64_t id);  // of a group: gone with its record
  v1::PlacementReply ReplyOf(const Placement& placement) const;
  void SavePlacement(const Placement& placement);
  scheduler::ClusterView ViewBefore(const scheduler::Waiting& waiting) const;
  uint64_t JobArrival(const std::string& job) const;
  int Priority(const v1::PlacementRequest& request) const;

  // ---- jobs.cc
  void SubmitJob(v1::SubmitRequest request, Answer<v1::JobInfo> answer);
  void StopJob(const std::string& id, const std::string& reason, Answer<v1::Done> answer);
  void JobEnded(const std::string& id, const absl::Status& status);
  void FinishJob(const std::string& id, bool late = false);
  void AddLocalJob(const std::string& id, const std::string& run_dir, int head_restarts);
  void JobRestarts(const std::string& id, const std::string& why);
  void SaveJob(const Job& job);
  v1::JobInfo InfoOf(const Job& job) const;
  void ForgetOldJobs();

  // ---- drain.cc
  void Drain(const v1::DrainRequest& request, Answer<v1::Done> answer);
  void MoveAway(Node& node, bool now_or_never);
  void CheckDrains(absl::Time now);
  bool Idle(const Node& node) const;

  // ---- recovery.cc
  void Recover(std::vector<JournalEntry> rows);
  void RecoverGroup(const v1::GroupRow& row);
  void RecoverPlacement(const v1::PlacementRow& row);
  void CheckRecovered();
  void EndRecovery();

  // ---- status.cc, streams.cc, invariants.cc
  void List(const v1::ListRequest& request, v1::ListReply* reply) const;
  absl::StatusOr<v1::DescribeReply> Describe(const std::string& what) const;
  v1::NodeInfo InfoOf(const Node& node) const;
  v1::ActorInfo InfoOf(const Group& group, int rank) const;
  v1::GroupInfo InfoOf(const Group& group) const;
  Subscription ReadLog(const std::string& actor_id, int64_t offset, int64_t max_bytes, bool follow,
                       std::function<void(absl::StatusOr<v1::LogChunk>)> sink);
  void OnLogChunk(const v1::LogChunk& chunk);
  void EndLogsOf(NodeId node, const absl::Status& why);
  void Stacks(const v1::ListRequest& which, absl::Duration patience, std::function<void(const v1::StackDump&)> sink,
              absl::AnyInvocable<void(absl::Status)> done);
  void OnStacks(const v1::StackDump& dump);
  void EndStacks(uint64_t id, absl::Duration patience);
  std::vector<std::string> CheckInvariants() const;

  // ---- core_impl.cc
  uint64_t NextToken() { return (options_.incarnation << 32) + ++counter_; }
  absl::Status CheckMayChange() const;  // the journal's health, and whether the cluster is stopping
  void Changed();                       // something did: a turn follows
  void Turn();
  void Deliver();
  void GroupChanged(const Group& group) { dirty_.insert(group.key), Changed(); }
  void Emit(const Group& group, GroupEvent::Kind kind, const absl::Status& status);
  Subscription Watch(const v1::ResolveRequest& what, std::function<void(const v1::ResolveReply&)> callback);
  Subscription OnGroupEvent(std::function<void(const GroupEvent&)> callback);
  struct ResolveKey {
    GroupKey group;
    int rank = -1;  // all of them
  };
  std::optional<ResolveKey> KeyOf(const v1::ResolveRequest& what) const;
  std::optional<v1::ResolveReply> Resolve(const v1::ResolveRequest& what) const;
  void Tell(uint64_t watcher);
  // Commands and answers leave through the outbox. An error promises nothing, so it does not wait: requests are refused
  // at once while the disk is full.
  void Command(NodeId node, v1::NodeCommand command);
  template <typename T>
  void Reply(Answer<T> answer, absl::StatusOr<T> result) {
    if (!answer) return;
    if (result.ok()) {
      outbox_.Add([answer = std::move(answer), result = std::move(result)]() mutable { answer(std::move(result)); });
      return;
    }
    loop_.Post([self = self_, answer = std::move(answer), result = std::move(result)]() mutable {
      if (*self != nullptr) answer(std::move(result));
    });
  }
  // `then(*this)` after `delay`, unless the core is gone.
  void After(absl::Duration delay, std::function<void(Impl&)> then);
  // ... and the group is still that one.
  void AfterFor(const Group& group, absl::Duration delay, std::function<void(Impl&, Group&)> then);
  Group* Find(const GroupKey& key);
  std::vector<Group*> Groups();  // a copy: what is done to one may remove another from the map, not from memory
  std::string RunDir(const std::string& job) const;
  int64_t UnixMs() const { return options_.unix_ms ? options_.unix_ms() : 0; }
  bool Fault(const char* name) const { return options_.fault == name; }
  std::string NodeName(NodeId node) const { return nodes_[node]->name; }
  ActorIdentity IdentityOf(const Group& group, int rank) const;

  EventLoop& loop_;
  Journal& journal_;
  JobPort* const jobs_;
  CoreOptions options_;
  std::shared_ptr<Impl*> self_;
  Outbox outbox_;
  RandomStream random_;
  uint64_t counter_ = 0, version_ = 0, arrivals_ = 0;
  bool turn_posted_ = false, pass_due_ = false, recovering_ = false;
  const absl::Time started_;
  absl::Time last_tick_;
  EventLoop::TimerId tick_timer_ = 0;

  scheduler::ClusterView view_;
  scheduler::PlacementQueue queue_;
  std::vector<std::unique_ptr<Node>> nodes_;  // by id; null where none
  absl::flat_hash_map<uint64_t, NodeId> sessions_;
  std::map<GroupKey, std::unique_ptr<Group>> groups_;
  std::vector<std::unique_ptr<Group>> graveyard_;  // until the turn's end
  std::map<uint64_t, Placement> placements_;
  absl::flat_hash_map<std::string, uint64_t> placement_keys_;  // "JOB/KEY"
  struct RankItem {
    GroupKey key;
    uint64_t serial = 0;
    int rank = 0;
  };
  std::map<uint64_t, RankItem> rank_items_;  // the queue's items that are one rank's replacement
  std::map<std::string, GroupKey> names_;
  std::map<std::string, Job> job_table_;
  struct PortsWanted {
    GroupKey key;
    uint64_t epoch = 0;
    int rank = 0;
  };
  std::map<uint64_t, PortsWanted> port_leases_;

  // What is heard.
  std::set<GroupKey> dirty_;
  std::vector<GroupEvent> events_;
  uint64_t next_listener_ = 1;
  std::map<uint64_t, std::shared_ptr<std::function<void(const GroupEvent&)>>> listeners_;
  struct Watcher {
    v1::ResolveRequest what;
    std::shared_ptr<std::function<void(const v1::ResolveReply&)>> callback;
    bool told = false;  // of something that is there
  };
  std::map<uint64_t, Watcher> watchers_;
  struct LogReader {
    NodeId node;
    std::shared_ptr<std::function<void(absl::StatusOr<v1::LogChunk>)>> sink;
  };
  std::map<uint64_t, LogReader> logs_;
  struct StackAsker {
    std::set<std::pair<std::string, uint64_t>> open;  // actors, with their epochs, that have not answered
    std::function<void(const v1::StackDump&)> sink;
    absl::AnyInvocable<void(absl::Status)> done;
  };
  std::map<uint64_t, StackAsker> stack_askers_;
  struct NodeWaiter {
    int count;
    absl::Time until;
    absl::Duration timeout;
    Answer<v1::Done> answer;
  };
  std::vector<NodeWaiter> node_waiters_;
  struct DrainWaiter {
    std::vector<std::string> nodes;
    absl::Time until;
    Answer<v1::Done> answer;
  };
  std::vector<DrainWaiter> drain_waiters_;

  // Shutdown.
  bool stopping_ = false, agents_told_ = false;
  absl::Duration stop_grace_;
  absl::Time stop_until_ = absl::InfiniteFuture();
  std::vector<Answer<v1::Done>> stop_answers_;
  bool stop_incomplete_ = false;
};

}  // namespace manta::controller::core
