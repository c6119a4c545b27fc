// What the CPU collectives share: the first error stays and is given to every later call, and Abort's flag. Internal to
// common/comm.
#pragma once

#include <atomic>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "common/comm/collective.h"

namespace manta::comm {

// What a call is: compared between ranks, so that a group whose ranks disagree ends with an error, not with garbage.
struct CallDescription {
  enum Kind : uint32_t { kNone, kAllReduce, kBroadcast, kAllGather, kReduceScatter, kBarrier, kSend };
  uint64_t sequence = 0;
  uint32_t kind = kNone;
  uint32_t type_and_op = 0;  // type * 16 + op
  uint64_t count = 0;        // elements, or bytes where a call has no element type
  uint64_t root = 0;

  bool operator==(const CallDescription&) const = default;
  std::string ToString() const {
    static constexpr const char* kNames[] = {"nothing",        "all_reduce", "broadcast", "all_gather",
                                             "reduce_scatter", "barrier",    "send/recv"};
    const char* name = kind < std::size(kNames) ? kNames[kind] : "?";
    if (kind == kAllReduce || kind == kReduceScatter) {
      return absl::StrCat("call ", sequence, ": ", name, "(", count, " x ",
                          Name(static_cast<DataType>(type_and_op / 16)), ", ", type_and_op % 16 == 0 ? "sum" : "max",
                          ")");
    }
    return absl::StrCat("call ", sequence, ": ", name, "(", count, " bytes, root ", root, ")");
  }
};

// "all ranks must make the same call".
inline absl::Status Disagreement(int rank, const CallDescription& mine, int peer, const CallDescription& theirs) {
  return absl::FailedPreconditionError(absl::StrCat("ranks disagree on the collective: rank ", rank, " makes ",
                                                    mine.ToString(), ", rank ", peer, " makes ", theirs.ToString()));
}

class CpuCollectiveBase : public Collective {
 protected:
  CpuCollectiveBase(int rank, int size, absl::Duration timeout) : Collective(rank, size), timeout_(timeout) {}

  // At the start of a call that all ranks make: the group's error, if it has one.
  absl::Status Begin() {
    ++sequence_;
    return BeginPointToPoint();
  }

  // The same for a call that only two ranks make, which the others cannot count.
  absl::Status BeginPointToPoint() {
    deadline_ = absl::Now() + timeout_;
    absl::MutexLock lock(&mutex_);
    return error_;
  }

  // Keeps the first error. Returns the one that stays.
  absl::Status Fail(const absl::Status& status) {
    absl::MutexLock lock(&mutex_);
    if (error_.ok()) error_ = status;
    failed_.store(true, std::memory_order_release);
    return error_;
  }

  absl::Status error() const {
    absl::MutexLock lock(&mutex_);
    return error_;
  }

  CallDescription Describe(CallDescription::Kind kind, uint64_t count, DataType type = DataType::kF32,
                           ReduceOp op = ReduceOp::kSum, int root = 0) const {
    return {sequence_, kind, static_cast<uint32_t>(type) * 16 + static_cast<uint32_t>(op), count,
            static_cast<uint64_t>(root)};
  }

  bool failed() const { return failed_.load(std::memory_order_acquire); }
  absl::Time deadline() const { return deadline_; }
  absl::Duration timeout() const { return timeout_; }

 private:
  const absl::Duration timeout_;
  absl::Time deadline_;
  uint64_t sequence_ = 0;
  std::atomic<bool> failed_{false};
  mutable absl::Mutex mutex_;
  absl::Status error_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace manta::comm
