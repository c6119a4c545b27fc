// LaneSet: the queues of an actor's calls, and who may run them. A lane runs `concurrency` calls at a time in the order
// in which they were admitted, and refuses what exceeds its capacity. Lane 0, "control", has no queue: the poller runs
// its handlers as they come, so they must be short and must not block.
//
// Threads claim a lane, take its calls one by one, and give the claim back (crew.h decides which thread does). A lane
// remembers for some calls that its handlers are slow, so that the poller hands the next ones to another thread at
// once.
//
// Thread-safe. Nothing here calls a handler.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/call/core/ring.h"
#include "common/call/core/server_session.h"

namespace manta::call {

struct LaneOptions {
  int concurrency = 1;
  size_t capacity = 1024;  // calls that wait
};

class LaneSet {
 public:
  static constexpr int kControl = 0;
  LaneSet();

  // The number of the lane of that name; made where it is not there. Before calls come.
  int Add(const std::string& name, LaneOptions options);
  void Set(const std::string& name, LaneOptions options);  // the same, with these options in any case
  int Find(const std::string& name) const;                 // -1: there is none
  int size() const { return static_cast<int>(lanes_.size()); }
  const std::string& name(int lane) const { return lanes_[lane]->name; }
  int total_concurrency() const;

  // Takes the call; RESOURCE_EXHAUSTED, NOT_STARTED where the lane is full: then the call is the caller's still.
  absl::Status Admit(int lane, CallRef& call);
  // A lane with waiting calls that may run one more, claimed for the calling thread; -1: there is none. From `after`
  // on, so that no lane starves.
  int ClaimAny(int after);
  bool Claim(int lane);
  // The next call of a claimed lane. False: there is none, and the claim is given back.
  bool Next(int lane, CallRef* call);
  void GiveBack(int lane);
  bool has_work() const { return ready_.load(std::memory_order_acquire) > 0; }

  void MarkSlow(int lane);
  // Counts one call; whether the lane is held to be slow.
  bool SpendSlow(int lane);

  struct Counts {
    uint64_t queued = 0, running = 0, completed = 0, refused = 0;
  };
  Counts counts() const;

 private:
  struct Lane {
    std::string name;
    LaneOptions options;
    mutable std::mutex mu;
    Ring<CallRef> queue;
    int claims = 0;
    uint64_t completed = 0, refused = 0;
    std::atomic<int> slow{0};
  };
  static bool Claimable(const Lane& lane) { return !lane.queue.empty() && lane.claims < lane.options.concurrency; }

  std::vector<std::unique_ptr<Lane>> lanes_;
  std::atomic<int> ready_{0};  // waiting calls, all lanes
};

}  // namespace manta::call
