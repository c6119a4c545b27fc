// WeightStore: the versions of the weights that a process holds for others to fetch.
//
// Publish copies the slices into an anonymous shared-memory file, so that training goes on while readers read. Two
// versions are kept by default: the newest, and the one before, whose memory the next Publish reuses unless a reader
// still has it (then that reader keeps its bytes, and new memory is taken). Nothing has a name in /dev/shm: readers
// open /proc/<pid>/fd/<n>, which is gone with the process, however it ends.
//
// Thread-safe; Publish is called by one thread at a time. Versions only grow.
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

struct WeightStoreOptions {
  int rank = 0;
  int max_versions = 2;   // at least 1
  bool checksums = true;  // computed while copying; costs a fraction of the copy
  CopyFunction copy;      // from the slices' memory to host memory
};

class WeightStore {
 public:
  explicit WeightStore(WeightStoreOptions options = {});

  // FAILED_PRECONDITION unless `version` is above all before; RESOURCE_EXHAUSTED where there is no memory for it.
  // `copy` reads the slices' memory; null: the options' one.
  [[nodiscard]] absl::Status Publish(uint64_t version, absl::Span<const LocalSlice> slices,
                                     CopyFunction copy = nullptr);

  // FAILED_PRECONDITION where the version (0: any) is not held.
  [[nodiscard]] absl::StatusOr<std::shared_ptr<const WeightVersion>> Get(uint64_t version) const;

  // Get for a reader of the segment itself: its bytes stay until ReleaseLease with the segment's path. A lease that
  // nobody gives back (its reader died) is forgotten when newer ones come: at most four are kept beside the versions
  // held.
  [[nodiscard]] absl::StatusOr<std::shared_ptr<const WeightVersion>> GetWithLease(uint64_t version);
  void ReleaseLease(uint64_t version, const std::string& path);

  uint64_t newest() const;

 private:
  std::shared_ptr<Segment> TakeFreeSegment(uint64_t bytes);

  const WeightStoreOptions options_;
  mutable absl::Mutex mutex_;
  std::list<std::shared_ptr<const WeightVersion>> versions_ ABSL_GUARDED_BY(mutex_);  // oldest first
  std::list<std::shared_ptr<const WeightVersion>> leases_ ABSL_GUARDED_BY(mutex_);    // one entry a lease, oldest first
  uint64_t newest_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace manta::comm
