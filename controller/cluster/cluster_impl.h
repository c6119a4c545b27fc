// Cluster's inside: state transitions here and in cluster_events.cc, the tasks that wait for them in cluster.cc.
#pragma once

#include "controller/cluster/cluster.h"
#include "controller/cluster/cluster_state.h"

namespace manta::controller {

class Cluster::Impl {
 public:
  Impl(EventLoop& loop, ActorPort& actors, Options options);
  ~Impl();

  // ---- cluster.cc: what waits
  Task<absl::StatusOr<std::shared_ptr<Group>>> StartGroup(GroupSpec spec);
  Task<absl::Status> StopGroup(std::shared_ptr<Group> group, absl::Duration grace);
  Task<absl::Status> StopAll(absl::Duration grace);
  Task<absl::Status> WaitForNodes(int count, absl::Duration deadline);
  Task<absl::Status> Explain(absl::Status status);
  Task<absl::StatusOr<std::vector<RankPlacement>>> AwaitPlacement(GroupSpec spec);
  Task<absl::Status> AwaitStart(std::shared_ptr<GroupRecord> record, GroupSpec spec);
  Task<void> EndGroup(std::shared_ptr<GroupRecord> record, absl::Duration grace);
  Task<bool> AwaitChange(absl::Time until);  // of nodes or slots; false at `until`
  absl::StatusOr<std::vector<RankPlacement>> TryPlace(const GroupSpec& spec) const;
  void SendStart(const GroupRecord& record, size_t index, const GroupSpec& spec);
  static absl::Status CheckSpec(const GroupSpec& spec);

  // ---- cluster_events.cc: what happens
  absl::Status NodeJoined(const v1::NodeHello& hello, std::shared_ptr<NodeLink> link);
  void OnNodeEvent(const std::string& node, const v1::NodeEvent& event);
  void NodeGone(const std::string& node, const std::string& reason);
  absl::Status Announce(const v1::AnnounceRequest& request);
  void ActorStarted(const v1::ActorStarted& started, const std::string& node);
  void ActorExited(const v1::ActorExited& exited, const std::string& node);
  void StartFailed(const v1::ActorStartFailed& failed, const std::string& node);
  void CheckBeats();
  void ConnectionEnded(const std::string& actor_id, uint64_t epoch);
  // The actor is the reason that its group has failed. Peers are told.
  void FailGroup(GroupRecord& record, ActorRecord& actor, const absl::Status& status);
  void ActorEnded(GroupRecord& record, ActorRecord& actor, v1::ActorState state);  // slots become free
  void StopActor(const ActorRecord& actor, absl::Duration grace);
  void Changed();  // wakes AwaitChange
  // The actor of that name in that epoch on that node; null where there is none.
  std::pair<std::shared_ptr<GroupRecord>, ActorRecord*> Find(const std::string& actor_id, uint64_t epoch,
                                                             const std::string* node);
  void FillStatus(v1::GetStatusReply* reply) const;

  EventLoop& loop_;
  ActorPort& actors_;
  Options options_;
  std::map<std::string, NodeRecord> nodes_;
  std::map<std::string, std::string> lost_nodes_;               // and why
  std::map<std::string, std::shared_ptr<GroupRecord>> groups_;  // by role
  std::map<std::string, uint64_t> epochs_;                      // the last one of each role
  std::vector<OneShot<bool>> change_waiters_;
  std::function<void(const Group&, const absl::Status&)> on_group_failed_;
  absl::Status first_failure_;  // of a group that was ready
  bool stopping_ = false;
  EventLoop::TimerId beat_timer_ = 0;
  absl::Time last_check_;
};

}  // namespace manta::controller
