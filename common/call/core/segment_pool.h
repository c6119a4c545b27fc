// SegmentPool: memory that a caller shares with the actors of its host, for arguments too large to be copied through a
// socket. Segments are sealed memfds, touched once when they are made, so that an argument costs one copy and no page
// faults; regions of them are given back when the call's final reply has come, and used again.
//
// A region whose call ended without the actor's word (the actor may still read it) is abandoned: its whole segment is
// never used again, and is unmapped here once its other regions are free; it lives on with its readers.
//
// Thread-safe. The pool must outlive its regions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "manta/v1/call.pb.h"

namespace manta::call {

// What a segment's memfd is called, as /proc shows it: a reader that finds another name there has not found this
// segment.
std::string SegmentName(uint64_t id);

class SegmentPool {
 public:
  struct Options {
    size_t segment_bytes = size_t{256} << 20;
    size_t max_bytes = size_t{1} << 30;  // of all segments
  };
  // MANTA_SHM_POOL_BYTES, where it is set, bounds the pool.
  static Options FromEnvironment();
  explicit SegmentPool(Options options);
  ~SegmentPool();
  SegmentPool(const SegmentPool&) = delete;
  SegmentPool& operator=(const SegmentPool&) = delete;

  struct Region {
    uint64_t segment = 0;
    size_t offset = 0, bytes = 0;
    std::byte* data = nullptr;
  };
  // RESOURCE_EXHAUSTED where the pool is full.
  absl::StatusOr<Region> Allocate(size_t bytes);
  void Free(const Region& region);
  void Abandon(const Region& region);
  v1::ShmRef Ref(const Region& region) const;

  size_t bytes() const;  // of all segments that are not abandoned

 private:
  struct Segment {
    uint64_t id = 0;
    int fd = -1;
    size_t bytes = 0;
    std::byte* data = nullptr;
    std::map<size_t, size_t> free;  // offset -> bytes
    size_t used = 0;
    bool abandoned = false;
  };
  absl::StatusOr<Segment*> AddSegment(size_t bytes);
  Segment* Find(uint64_t id) const;
  void GiveBack(Segment* segment, const Region& region);
  void Unmap(Segment& segment);

  const Options options_;
  mutable std::mutex mu_;
  std::vector<std::unique_ptr<Segment>> segments_;
  uint64_t next_id_ = 1;
  size_t bytes_ = 0;
};

// As fast as the memory takes it: large copies are shared with a second thread.
void CopyLarge(std::byte* to, const std::byte* from, size_t bytes);

}  // namespace manta::call
