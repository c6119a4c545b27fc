#include "common/call/core/lanes.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/call/core/outcome.h"

namespace manta::call {
namespace {

constexpr int kSlowCalls = 64;

}  // namespace

LaneSet::LaneSet() {
  Add("control", {});
}

int LaneSet::Add(const std::string& name, LaneOptions options) {
  MANTA_CHECK(options.concurrency > 0 && options.capacity > 0) << "lane " << name;
  const int found = Find(name);
  if (found >= 0) return found;
  auto lane = std::make_unique<Lane>();
  lane->name = name;
  lane->options = options;
  lanes_.push_back(std::move(lane));
  return size() - 1;
}

void LaneSet::Set(const std::string& name, LaneOptions options) {
  lanes_[Add(name, options)]->options = options;
}

int LaneSet::Find(const std::string& name) const {
  for (int i = 0; i < size(); ++i) {
    if (lanes_[i]->name == name) return i;
  }
  return -1;
}

int LaneSet::total_concurrency() const {
  int total = 0;
  for (int i = 1; i < size(); ++i) total += lanes_[i]->options.concurrency;
  return total;
}

absl::Status LaneSet::Admit(int index, CallRef& call) {
  Lane& lane = *lanes_[index];
  std::lock_guard lock(lane.mu);
  if (lane.queue.size() >= lane.options.capacity) {
    ++lane.refused;
    return NotStarted(absl::ResourceExhaustedError(
        absl::StrCat("lane ", lane.name, " is full: ", lane.options.capacity, " calls wait already")));
  }
  lane.queue.push_back(std::move(call));
  ready_.fetch_add(1, std::memory_order_release);
  return absl::OkStatus();
}

int LaneSet::ClaimAny(int after) {
  if (!has_work()) return -1;
  for (int i = 1; i <= size(); ++i) {
    const int index = (after + i) % size();
    if (Claim(index)) return index;
  }
  return -1;
}

bool LaneSet::Claim(int index) {
  Lane& lane = *lanes_[index];
  std::lock_guard lock(lane.mu);
  if (!Claimable(lane)) return false;
  ++lane.claims;
  return true;
}

bool LaneSet::Next(int index, CallRef* call) {
  Lane& lane = *lanes_[index];
  std::lock_guard lock(lane.mu);
  if (lane.queue.empty()) {
    --lane.claims;
    return false;
  }
  *call = lane.queue.pop_front();
  ++lane.completed;
  ready_.fetch_sub(1, std::memory_order_relaxed);
  return true;
}

void LaneSet::GiveBack(int index) {
  Lane& lane = *lanes_[index];
  std::lock_guard lock(lane.mu);
  --lane.claims;
}

void LaneSet::MarkSlow(int index) {
  lanes_[index]->slow.store(kSlowCalls, std::memory_order_relaxed);
}

bool LaneSet::SpendSlow(int index) {
  std::atomic<int>& slow = lanes_[index]->slow;
  const int left = slow.load(std::memory_order_relaxed);
  if (left <= 0) return false;
  slow.store(left - 1, std::memory_order_relaxed);
  return true;
}

LaneSet::Counts LaneSet::counts() const {
  Counts counts;
  for (const auto& lane : lanes_) {
    std::lock_guard lock(lane->mu);
    counts.queued += lane->queue.size();
    counts.running += lane->claims;
    counts.completed += lane->completed;
    counts.refused += lane->refused;
  }
  return counts;
}

}  // namespace manta::call
