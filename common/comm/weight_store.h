// WeightStore: the versions of the weights that a process holds for others to fetch.
//
// Publish copies the slices into an anonymous shared-memory file, so that training goes on while readers read. Two
// versions are kept by default: the newest, and the one before, whose memory the next Publish reuses unless a reader
// still has it (then that reader keeps its bytes, and new memory is taken). Nothing has a name in /dev/shm: readers
// open /proc/<pid>/fd/<n>, which is gone with the process, however it ends.
//
// Weights that lie on a GPU are published where they are instead (PublishInPlace): nothing is copied, and readers on
// the GPU transports borrow the trainer's own parameters. BeginChange, before the trainer writes to them, waits for
// those who read, and keeps a copy on the host for readers that have not had the version yet. A reader without a GPU
// transport makes such a copy as well (KeepOnHost).
//
// Thread-safe; Publish, PublishInPlace and BeginChange are called by one thread. Versions only grow.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "common/comm/device_transport.h"
#include "common/comm/socket.h"
#include "common/comm/weight_plan.h"

namespace manta::comm {

// Copies between host memory and memory that only the caller knows how to read or write (a GPU's). Null: memcpy.
using CopyFunction = std::function<absl::Status(void* to, const void* from, size_t bytes)>;

// A slice and its bytes, row-major.
struct LocalSlice {
  SliceSpec spec;
  const void* data = nullptr;
};

// What lies at the start of a segment, so that a reader can tell that it opened the right one.
struct SegmentHeader {
  static constexpr uint64_t kMagic = 0x5754474853544e4d;
  static constexpr uint64_t kBytes = 4096;  // the slices begin behind it
  uint64_t magic = kMagic;
  uint64_t version = 0;
};

// Shared memory that others may map. Freed (for this process) with its last reference.
class Segment {
 public:
  [[nodiscard]] static absl::StatusOr<std::shared_ptr<Segment>> Create(uint64_t bytes);
  ~Segment();
  std::byte* data() const { return data_; }
  uint64_t bytes() const { return bytes_; }
  std::string path() const;  // for a process with our HostId

 private:
  Segment(Fd fd, std::byte* data, uint64_t bytes) : fd_(std::move(fd)), data_(data), bytes_(bytes) {}
  const Fd fd_;
  std::byte* const data_;
  const uint64_t bytes_;
};

// One version. Its bytes do not change while anyone holds it.
struct WeightVersion {
  v1::WeightManifest manifest;    // without shared_memory
  std::vector<SliceSpec> slices;  // as in the manifest
  std::shared_ptr<Segment> segment;
  const std::byte* SliceData(size_t i) const { return segment->data() + manifest.slices(static_cast<int>(i)).offset(); }
};

// The weights where they lie on a GPU, as readers see them. What is exported stays so over many versions.
struct InPlaceWeights {
  uint64_t version = 0;
  std::vector<LocalSlice> slices;
  v1::WeightManifest manifest;  // offsets count from `base`; no checksums
  const std::byte* base = nullptr;
  std::shared_ptr<DeviceTransport> transport;
  absl::StatusOr<DeviceTransport::Export> exported = absl::UnavailableError("not exported");
};

struct WeightStoreOptions {
  int rank = 0;
  absl::Duration max_borrow = absl::Seconds(30);  // BeginChange takes the weights away from who reads longer
  int max_versions = 2;                           // at least 1
  bool checksums = true;                          // computed while copying; costs a fraction of the copy
  CopyFunction copy;                              // from the slices' memory to host memory
};

class WeightStore {
 public:
  explicit WeightStore(WeightStoreOptions options = {});

  // FAILED_PRECONDITION unless `version` is above all before; RESOURCE_EXHAUSTED where there is no memory for it.
  // `copy` reads the slices' memory; null: the options' one.
  [[nodiscard]] absl::Status Publish(uint64_t version, absl::Span<const LocalSlice> slices,
                                     CopyFunction copy = nullptr);

  // The bytes stay where they are, and are not changed before BeginChange. Device work on them must be done.
  // `num_readers`: how many will borrow this version; 0: not known. `copy` brings bytes to the host where that is asked
  // for.
  [[nodiscard]] absl::Status PublishInPlace(uint64_t version, absl::Span<const LocalSlice> slices,
                                            std::shared_ptr<DeviceTransport> transport, CopyFunction copy,
                                            int num_readers);
  [[nodiscard]] absl::Status BeginChange();

  // What was published in place last, also while it is changed: the layout that the next version will have. Null:
  // nothing.
  std::shared_ptr<const InPlaceWeights> in_place() const;

  // A reader's hold on weights that lie in place.
  class Loan {
   public:
    ~Loan();
    const InPlaceWeights& weights() const { return *weights_; }
    // The reader is done: whether the weights were its own until now. Counts it among those who have had the version.
    bool Return();

   private:
    friend class WeightStore;
    Loan(WeightStore* store, std::shared_ptr<const InPlaceWeights> weights)
        : store_(store), weights_(std::move(weights)) {}
    WeightStore* const store_;
    const std::shared_ptr<const InPlaceWeights> weights_;
    bool returned_ = false;
  };
  // FAILED_PRECONDITION where another version (0: any) lies here; ABORTED while it is changed: ask again.
  [[nodiscard]] absl::StatusOr<std::unique_ptr<Loan>> Borrow(uint64_t version);

  // Another reader has had the version, from elsewhere.
  void CountReader(uint64_t version);

  // Whether Get would find the version only after KeepOnHost, which copies it from the device and takes its time.
  bool OnlyInPlace(uint64_t version) const;
  [[nodiscard]] absl::Status KeepOnHost(uint64_t version);

  // FAILED_PRECONDITION where the version (0: any) is not held. ABORTED where it is being replaced: ask again.
  [[nodiscard]] absl::StatusOr<std::shared_ptr<const WeightVersion>> Get(uint64_t version) const;

  // Get for a reader of the segment itself: its bytes stay until ReleaseLease with the segment's path. A lease that
  // nobody gives back (its reader died) is forgotten when newer ones come: at most four are kept beside the versions
  // held.
  [[nodiscard]] absl::StatusOr<std::shared_ptr<const WeightVersion>> GetWithLease(uint64_t version);
  void ReleaseLease(uint64_t version, const std::string& path);

  uint64_t newest() const;

 private:
  absl::Status CheckVersion(uint64_t version) const;
  absl::StatusOr<std::shared_ptr<WeightVersion>> Copy(uint64_t version, absl::Span<const LocalSlice> slices,
                                                      const CopyFunction& copy);
  std::shared_ptr<Segment> TakeFreeSegment(uint64_t bytes);
  bool EndLoan(uint64_t version, bool completed);
  bool Holds(uint64_t version) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const WeightStoreOptions options_;
  mutable absl::Mutex mutex_;
  std::list<std::shared_ptr<const WeightVersion>> versions_ ABSL_GUARDED_BY(mutex_);  // oldest first
  std::list<std::shared_ptr<const WeightVersion>> leases_ ABSL_GUARDED_BY(mutex_);    // one entry a lease, oldest first
  uint64_t newest_ ABSL_GUARDED_BY(mutex_) = 0;

  absl::Mutex copying_ ABSL_ACQUIRED_BEFORE(mutex_);  // one copy from the device at a time
  std::shared_ptr<const InPlaceWeights> in_place_ ABSL_GUARDED_BY(mutex_);
  CopyFunction in_place_copy_ ABSL_GUARDED_BY(mutex_);
  enum class InPlace { kNone, kLent, kClosing } in_place_state_ ABSL_GUARDED_BY(mutex_) = InPlace::kNone;
  int expected_readers_ ABSL_GUARDED_BY(mutex_) = 0;
  int completed_readers_ ABSL_GUARDED_BY(mutex_) = 0;
  int loans_ ABSL_GUARDED_BY(mutex_) = 0;  // of in_place_'s version, while it is not revoked
};

}  // namespace manta::comm
