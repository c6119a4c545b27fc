// SegmentMap: an actor's view of the segments that its callers share with it. A segment is opened through /proc and
// mapped, read-only, when it is first named, and stays mapped while it is used or the maps stay within their bound.
//
// What is named by a caller is not trusted: only a memfd that is sealed against shrinking is mapped, and only what lies
// inside it is handed out. FAILED_PRECONDITION where this process may not open it, or finds something else in its place
// (SegmentName): the caller then sends chunks.
//
// Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <span>
#include <tuple>

#include "absl/status/statusor.h"
#include "manta/v1/call.pb.h"

namespace manta::call {

class SegmentMap {
 public:
  explicit SegmentMap(size_t max_bytes = size_t{2} << 30) : max_bytes_(max_bytes) {}
  struct View {
    std::span<const std::byte> bytes;
    std::shared_ptr<const void> holder;  // keeps it mapped
  };
  absl::StatusOr<View> Open(const v1::ShmRef& ref);

 private:
  struct Mapped;
  using Key = std::tuple<int64_t, int32_t, uint64_t>;  // pid, descriptor, segment
  const size_t max_bytes_;
  std::mutex mu_;
  std::list<std::pair<Key, std::shared_ptr<Mapped>>> maps_;  // last used first
  size_t bytes_ = 0;
};

}  // namespace manta::call
