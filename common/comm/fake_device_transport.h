// A DeviceTransport within one process, for tests: "device memory" is the process's own, groups meet in a registry, and
// messages are copied when both sides have come to them. It fails where it is told to.
#pragma once

#include <atomic>
#include <cstring>
#include <deque>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "common/comm/device_transport.h"

namespace manta::comm {

inline void CopyInMemory(const CopyRun& run) {
  for (uint64_t i = 0; i < run.count; ++i) {
    std::memcpy(run.to + i * run.to_stride, run.from + i * run.from_stride, run.bytes);
  }
}

// A communicator: who has joined, and what is on its way.
class FakeGroupState {
 public:
  absl::Status Join(int size, absl::Time deadline, const Check& check) {
    {
      absl::MutexLock lock(&mutex_);
      ++joined_;
    }
    return Await([&] { return joined_ >= size; }, deadline, check);
  }
  void Put(int from, int to, std::string bytes) {
    absl::MutexLock lock(&mutex_);
    boxes_[{from, to}].push_back(std::move(bytes));
  }
  absl::StatusOr<std::string> Take(int from, int to, absl::Time deadline, const Check& check) {
    std::deque<std::string>* box;
    {
      absl::MutexLock lock(&mutex_);
      box = &boxes_[{from, to}];
    }
    if (absl::Status s = Await([&] { return !box->empty(); }, deadline, check); !s.ok()) return s;
    absl::MutexLock lock(&mutex_);
    std::string bytes = std::move(box->front());
    box->pop_front();
    return bytes;
  }

 private:
  template <typename Done>
  absl::Status Await(const Done& done, absl::Time deadline, const Check& check) {
    for (;;) {
      {
        absl::MutexLock lock(&mutex_);
        if (done()) return absl::OkStatus();
      }
      if (absl::Status s = check(); !s.ok()) return s;
      if (absl::Now() >= deadline) return absl::DeadlineExceededError("the peers did not come");
      absl::SleepFor(absl::Milliseconds(1));
    }
  }

  absl::Mutex mutex_;
  int joined_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<std::pair<int, int>, std::deque<std::string>> boxes_ ABSL_GUARDED_BY(mutex_);
};

class FakeDeviceTransport : public DeviceTransport {
 public:
  explicit FakeDeviceTransport(std::string gpu) : gpu_(std::move(gpu)) {}

  // What goes wrong.
  std::atomic<bool> nccl{true}, exports{true}, opens{true}, joins{true};
  std::atomic<int> fail_after_buckets{-1};   // of the next Send or Receive: with an error
  std::atomic<int> stall_after_buckets{-1};  // or with silence
  std::atomic<bool> damage{false};           // the first byte that is sent or copied
  // What happened.
  std::atomic<int> groups{0}, opened{0}, copies{0};

  const std::string& gpu() const override { return gpu_; }
  bool has_nccl() const override { return nccl; }

  absl::StatusOr<Export> ExportMemory(const void* data, uint64_t) override {
    if (!exports) return absl::FailedPreconditionError("expandable segments");
    Export result;
    result.handle = absl::StrCat(reinterpret_cast<uintptr_t>(data) - 16);
    result.offset = 16;
    return result;
  }
  absl::StatusOr<std::shared_ptr<std::byte>> OpenMemory(const std::string& handle) override {
    if (!opens) return absl::InternalError("cannot open");
    ++opened;
    return std::shared_ptr<std::byte>(reinterpret_cast<std::byte*>(std::stoull(handle)), [](std::byte*) {});
  }
  absl::Status Copy(absl::Span<const CopyRun> runs, absl::Time) override {
    ++copies;
    for (const CopyRun& run : runs) CopyInMemory(run);
    if (damage.exchange(false) && !runs.empty()) runs[0].to[0] ^= std::byte{1};
    return absl::OkStatus();
  }
  absl::StatusOr<std::string> NewGroupId() override {
    static std::atomic<int> next{0};
    return absl::StrCat("group ", next++);
  }
  absl::StatusOr<std::unique_ptr<PeerGroup>> Join(const std::string& id, int rank, int size, absl::Time deadline,
                                                  const Check& check) override;

 private:
  class Group;
  const std::string gpu_;
};

class FakeDeviceTransport::Group : public PeerGroup {
 public:
  Group(FakeDeviceTransport* owner, std::shared_ptr<FakeGroupState> state, int rank)
      : owner_(*owner), state_(std::move(state)), rank_(rank) {}

  absl::StatusOr<std::byte*> Staging(int slot, uint64_t bytes) override {
    staging_[slot].resize(std::max<size_t>(staging_[slot].size(), bytes));
    return staging_[slot].data();
  }
  absl::Status Send(absl::Span<const Bucket> buckets, absl::Time deadline, const Check& check) override {
    int done = 0;
    for (const Bucket& bucket : buckets) {
      if (absl::Status s = GoWrong(done++, deadline, check); !s.ok()) return s;
      for (const CopyRun& run : bucket.copies) CopyInMemory(run);
      for (const Message& message : bucket.messages) {
        std::string bytes(reinterpret_cast<const char*>(message.data), message.bytes);
        if (owner_.damage.exchange(false)) bytes[0] ^= 1;
        state_->Put(rank_, message.peer, std::move(bytes));
      }
    }
    return absl::OkStatus();
  }
  absl::Status Receive(absl::Span<const Bucket> buckets, absl::Time deadline, const Check& check) override {
    int done = 0;
    for (const Bucket& bucket : buckets) {
      if (absl::Status s = GoWrong(done++, deadline, check); !s.ok()) return s;
      for (const Message& message : bucket.messages) {
        absl::StatusOr<std::string> bytes = state_->Take(message.peer, rank_, deadline, check);
        if (!bytes.ok()) return bytes.status();
        if (bytes->size() != message.bytes) return absl::InternalError("the two sides cut differently");
        std::memcpy(message.data, bytes->data(), bytes->size());
      }
      for (const CopyRun& run : bucket.copies) CopyInMemory(run);
    }
    return absl::OkStatus();
  }

 private:
  absl::Status GoWrong(int done, absl::Time deadline, const Check& check) {
    if (owner_.fail_after_buckets == done) {
      owner_.fail_after_buckets = -1;
      return absl::InternalError("unhandled system error");
    }
    if (owner_.stall_after_buckets != done) return absl::OkStatus();
    owner_.stall_after_buckets = -1;
    while (absl::Now() < deadline) {
      if (absl::Status s = check(); !s.ok()) return s;
      absl::SleepFor(absl::Milliseconds(1));
    }
    return absl::DeadlineExceededError("stalled");
  }

  FakeDeviceTransport& owner_;
  const std::shared_ptr<FakeGroupState> state_;
  const int rank_;
  std::vector<std::byte> staging_[2];
};

inline absl::StatusOr<std::unique_ptr<PeerGroup>> FakeDeviceTransport::Join(const std::string& id, int rank, int size,
                                                                            absl::Time deadline, const Check& check) {
  static absl::Mutex mutex;
  static auto* const registry = new std::map<std::string, std::shared_ptr<FakeGroupState>>();
  if (!joins) return absl::InternalError("cannot join");
  std::shared_ptr<FakeGroupState> state;
  {
    absl::MutexLock lock(&mutex);
    std::shared_ptr<FakeGroupState>& entry = (*registry)[id];
    if (entry == nullptr) entry = std::make_shared<FakeGroupState>();
    state = entry;
  }
  if (absl::Status s = state->Join(size, deadline, check); !s.ok()) return s;
  ++groups;
  return std::make_unique<Group>(this, std::move(state), rank);
}

}  // namespace manta::comm
