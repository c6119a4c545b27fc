// The records that the cluster keeps. Internal to cluster.cc.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/base/task.h"
#include "controller/cluster/death.h"
#include "controller/cluster/group.h"
#include "controller/cluster/placement.h"
#include "controller/cluster/ports.h"
#include "manta/v1/actor.pb.h"
#include "manta/v1/node.pb.h"

namespace manta::controller {

struct NodeRecord {
  v1::NodeHello hello;
  std::shared_ptr<NodeLink> link;
  absl::Time last_beat;
  int cpu_used = 0;
  std::set<int> gpus_used;

  NodeCapacity Capacity() const {
    NodeCapacity capacity{.name = hello.node(),
                          .cpu_slots = hello.cpu_slots(),
                          .cpu_free = hello.cpu_slots() - cpu_used,
                          .num_gpus = hello.gpus_size()};
    for (const v1::Gpu& gpu : hello.gpus()) {
      if (gpus_used.count(gpu.index()) == 0) capacity.gpus_free.push_back(gpu.index());
    }
    std::sort(capacity.gpus_free.begin(), capacity.gpus_free.end());
    return capacity;
  }
};

struct ActorRecord {
  ActorIdentity identity;
  uint64_t epoch = 0;
  v1::ActorState state = v1::ACTOR_STATE_PENDING;
  std::string address, host_id;
  int cpu_slots = 0;
  std::vector<int> gpus;
  std::unique_ptr<ActorConnection> connection;  // once it has announced itself
  absl::Time last_beat;
  v1::ActorBeat beat;
  bool ended = false;  // its process is gone, and its slots are free

  bool MayRun() const { return !ended && state != v1::ACTOR_STATE_PENDING; }
};

struct GroupRecord {
  GroupRecord(EventLoop& loop, std::shared_ptr<Group> g) : group(std::move(g)), started(loop), gone(loop) {}

  std::shared_ptr<Group> group;
  std::vector<ActorRecord> actors;
  OneShot<absl::Status> started;  // all ready, or the first thing that went wrong
  OneShot<bool> gone;             // no process is left
  absl::Status failure;           // not OK once an actor has ended or fallen silent unasked
  bool ready = false, stopping = false;

  bool AllEnded() const {
    return std::all_of(actors.begin(), actors.end(), [](const ActorRecord& a) { return !a.MayRun(); });
  }
};

}  // namespace manta::controller
