#include "controller/scheduler/cluster_view.h"

#include <algorithm>

#include "common/base/check.h"
#include "controller/scheduler/natural_order.h"

namespace manta::controller::scheduler {
namespace {

bool Contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

uint64_t NodeView::GpusFor(const v1::Bundle& bundle, const std::string& job, bool as_if_empty) const {
  uint64_t gpus = as_if_empty ? has.gpus : has.gpus & ~gpus_used;
  if (bundle.gpu_slot().empty()) return gpus;
  if (!as_if_empty) {
    for (const SharedGpu& gpu : shared) {
      if (gpu.job == job && !Contains(gpu.slots, bundle.gpu_slot())) gpus |= has.gpus & (uint64_t{1} << gpu.gpu);
    }
  }
  for (const auto& [gpu, names] : has.shared_slots) {
    if (!Contains(names, bundle.gpu_slot())) gpus &= ~(uint64_t{1} << gpu);
  }
  return gpus;
}

int NodeView::RoomFor(const v1::Bundle& bundle, const std::string& job, bool as_if_empty, int cap) const {
  int64_t room = cap;
  if (bundle.cpu_slots() > 0) {
    room = std::min<int64_t>(room, (has.cpu_slots - (as_if_empty ? 0 : cpu_used)) / bundle.cpu_slots());
  }
  if (bundle.memory_bytes() > 0) {
    const uint64_t used = as_if_empty ? 0 : std::min(memory_used, has.memory_bytes);
    room = std::min<int64_t>(room, static_cast<int64_t>((has.memory_bytes - used) / bundle.memory_bytes()));
  }
  if (bundle.gpus() > 0 && room > 0) {
    room = std::min<int64_t>(room, std::popcount(GpusFor(bundle, job, as_if_empty)) / bundle.gpus());
  }
  return static_cast<int>(std::max<int64_t>(room, 0));
}

const std::string& ClusterView::DomainOf(NodeIndex node) const {
  return DomainName(nodes_[node]);
}

void ClusterView::Insert(NodeIndex node) {
  const auto at = std::lower_bound(order_.begin(), order_.end(), node, [this](NodeIndex a, NodeIndex b) {
    const std::string& domain_a = DomainOf(a);
    const std::string& domain_b = DomainOf(b);
    if (domain_a != domain_b) return NaturalLess(domain_a, domain_b);
    return NaturalLess(nodes_[a].name, nodes_[b].name);
  });
  order_.insert(at, node);
}

void ClusterView::TakeOut(NodeIndex node) {
  order_.erase(std::find(order_.begin(), order_.end(), node));
}

NodeIndex ClusterView::Add(const std::string& name) {
  NodeIndex node;
  if (unused_.empty()) {
    node = static_cast<NodeIndex>(nodes_.size());
    nodes_.emplace_back();
  } else {
    node = unused_.back();
    unused_.pop_back();
    nodes_[node] = NodeView();
  }
  nodes_[node].name = name;
  MANTA_CHECK(by_name_.emplace(name, node).second) << name;
  Insert(node);
  return node;
}

void ClusterView::Remove(NodeIndex node) {
  TakeOut(node);
  by_name_.erase(nodes_[node].name);
  nodes_[node] = NodeView();
  unused_.push_back(node);
}

NodeIndex ClusterView::Find(const std::string& name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? kNoNode : found->second;
}

void ClusterView::SetCapacity(NodeIndex node, NodeCapacity capacity) {
  if (capacity.domain == nodes_[node].has.domain) {
    nodes_[node].has = std::move(capacity);
    return;
  }
  TakeOut(node);
  nodes_[node].has = std::move(capacity);
  Insert(node);
}

void ClusterView::Take(const PlacedRank& place, const v1::Bundle& bundle, const std::string& job) {
  NodeView& node = nodes_[place.node];
  node.cpu_used += bundle.cpu_slots();
  node.memory_used += bundle.memory_bytes();
  node.gpus_used |= place.gpus;
  if (bundle.gpu_slot().empty()) return;
  for (uint64_t left = place.gpus; left != 0; left &= left - 1) {
    const int gpu = std::countr_zero(left);
    auto found = std::find_if(node.shared.begin(), node.shared.end(), [&](const auto& s) { return s.gpu == gpu; });
    if (found == node.shared.end()) found = node.shared.insert(found, {gpu, job, {}});
    found->slots.push_back(bundle.gpu_slot());
  }
}

void ClusterView::Give(const PlacedRank& place, const v1::Bundle& bundle, const std::string& job) {
  (void)job;
  NodeView& node = nodes_[place.node];
  node.cpu_used -= bundle.cpu_slots();
  node.memory_used -= bundle.memory_bytes();
  if (bundle.gpu_slot().empty()) {
    node.gpus_used &= ~place.gpus;
    return;
  }
  for (uint64_t left = place.gpus; left != 0; left &= left - 1) {
    const int gpu = std::countr_zero(left);
    const auto found =
        std::find_if(node.shared.begin(), node.shared.end(), [&](const auto& s) { return s.gpu == gpu; });
    MANTA_CHECK(found != node.shared.end()) << node.name << " GPU " << gpu;
    const auto slot = std::find(found->slots.begin(), found->slots.end(), bundle.gpu_slot());
    MANTA_CHECK(slot != found->slots.end()) << node.name << " GPU " << gpu << " slot " << bundle.gpu_slot();
    found->slots.erase(slot);
    if (!found->slots.empty()) continue;
    node.shared.erase(found);
    node.gpus_used &= ~(uint64_t{1} << gpu);
  }
}

void ClusterView::ClearUsage() {
  for (NodeView& node : nodes_) {
    node.cpu_used = 0;
    node.memory_used = node.gpus_used = 0;
    node.shared.clear();
  }
}

}  // namespace manta::controller::scheduler
