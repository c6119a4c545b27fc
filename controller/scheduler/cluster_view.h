// ClusterView: what each node has and what of it is taken, in the form that placement looks at; changed by deltas, so
// that a placement among a thousand nodes is one pass over small records.
//
// A GPU is free, or taken whole, or shared: by slots of one job (a trainer and a generator that take turns on it), each
// slot's name held once. A rank with a slot and no GPU only looks on: it sees one of its node's GPUs beside whoever
// holds it. What is taken is counted apart from what there is: a node that is expected but not there yet can hold what
// was placed on it before.
//
// A value without locks: copies are independent (the queue tries things out on one).
#pragma once

#include <bit>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "manta/v1/cluster.pb.h"

namespace manta::controller::scheduler {

using NodeIndex = int32_t;
inline constexpr NodeIndex kNoNode = -1;
inline constexpr int kMaxGpuIndex = 63;

enum class Usable : uint8_t {
  kYes,
  kSuspect,   // silent for some seconds: not now
  kHeld,      // joined, but something that is over may still run on it: not now
  kDraining,  // nothing new
  kAbsent,    // lost, or not back yet
};

// What a node is.
struct NodeCapacity {
  int cpu_slots = 0;
  uint64_t memory_bytes = 0;
  uint64_t gpus = 0;                                     // bit i: there is a GPU of index i
  std::map<int, std::vector<std::string>> shared_slots;  // GPU -> the only names that may share it; absent: any
  std::string domain;                                    // of NVLink; empty: its own
  std::map<std::string, std::string> labels;
};

struct SharedGpu {
  int gpu = 0;
  std::string job;
  std::vector<std::string> slots;  // held
};

struct NodeView {
  std::string name;
  NodeCapacity has;
  Usable usable = Usable::kAbsent;
  int cpu_used = 0;
  uint64_t memory_used = 0;
  uint64_t gpus_used = 0;  // whole, or shared by somebody
  std::vector<SharedGpu> shared;

  // GPUs that a rank of `job` may take: whole ones, or for a slot those where that name is not held.
  uint64_t GpusFor(const v1::Bundle& bundle, const std::string& job, bool as_if_empty) const;
  // How many ranks of that kind fit, `cap` at most.
  int RoomFor(const v1::Bundle& bundle, const std::string& job, bool as_if_empty, int cap) const;
};

// Where one rank lies.
struct PlacedRank {
  NodeIndex node = kNoNode;
  uint64_t gpus = 0;
  bool operator==(const PlacedRank&) const = default;
};

class ClusterView {
 public:
  // Known from now on, absent. The name is not there yet.
  NodeIndex Add(const std::string& name);
  void Remove(NodeIndex node);
  NodeIndex Find(const std::string& name) const;  // kNoNode
  void SetCapacity(NodeIndex node, NodeCapacity capacity);
  void SetUsable(NodeIndex node, Usable usable) { nodes_[node].usable = usable; }
  const NodeView& node(NodeIndex node) const { return nodes_[node]; }
  // By (NVLink domain, name), each in natural order: the order of ranks.
  const std::vector<NodeIndex>& order() const { return order_; }

  void Take(const PlacedRank& place, const v1::Bundle& bundle, const std::string& job);
  void Give(const PlacedRank& place, const v1::Bundle& bundle, const std::string& job);
  void ClearUsage();

 private:
  const std::string& DomainOf(NodeIndex node) const;
  void Insert(NodeIndex node);
  void TakeOut(NodeIndex node);

  std::vector<NodeView> nodes_;
  std::vector<NodeIndex> unused_;
  std::vector<NodeIndex> order_;
  absl::flat_hash_map<std::string, NodeIndex> by_name_;
};

// The domain's name for comparing: that of the node where it has none.
inline const std::string& DomainName(const NodeView& node) {
  return node.has.domain.empty() ? node.name : node.has.domain;
}

}  // namespace manta::controller::scheduler
