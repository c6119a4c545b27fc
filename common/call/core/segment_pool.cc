#include "common/call/core/segment_pool.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <random>
#include <thread>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/check.h"

namespace manta::call {
namespace {

constexpr size_t kStep = size_t{64} << 10;
constexpr size_t kSharedCopy = size_t{8} << 20;

size_t RoundUp(size_t bytes, size_t step) {
  return (bytes + step - 1) / step * step;
}

}  // namespace

std::string SegmentName(uint64_t id) {
  return absl::StrCat("manta-arguments-", absl::Hex(id, absl::kZeroPad16));
}

SegmentPool::Options SegmentPool::FromEnvironment() {
  Options options;
  const char* text = std::getenv("MANTA_SHM_POOL_BYTES");
  size_t bytes = 0;
  if (text != nullptr && absl::SimpleAtoi(text, &bytes)) options.max_bytes = bytes;
  options.segment_bytes = std::min(options.segment_bytes, RoundUp(options.max_bytes / 4 + 1, kStep));
  return options;
}

SegmentPool::SegmentPool(Options options) : options_(options) {
  std::random_device device;  // another process with this one's id names other segments
  next_id_ = (uint64_t{device()} << 32 | device()) >> 1;
}

SegmentPool::~SegmentPool() {
  for (const auto& segment : segments_) Unmap(*segment);
}

absl::StatusOr<SegmentPool::Region> SegmentPool::Allocate(size_t bytes) {
  const size_t rounded = RoundUp(std::max<size_t>(bytes, 1), kStep);
  std::lock_guard lock(mu_);
  Segment* found = nullptr;
  std::map<size_t, size_t>::iterator place;
  for (const auto& segment : segments_) {
    if (segment->abandoned) continue;
    place = std::find_if(segment->free.begin(), segment->free.end(),
                         [&](const auto& hole) { return hole.second >= rounded; });
    if (place == segment->free.end()) continue;
    found = segment.get();
    break;
  }
  if (found == nullptr) {
    absl::StatusOr<Segment*> added = AddSegment(rounded);
    if (!added.ok()) return added.status();
    found = *added;
    place = found->free.begin();
  }
  Region region{.segment = found->id, .offset = place->first, .bytes = bytes, .data = found->data + place->first};
  const size_t left = place->second - rounded;
  found->free.erase(place);
  if (left > 0) found->free.emplace(region.offset + rounded, left);
  found->used += rounded;
  return region;
}

absl::StatusOr<SegmentPool::Segment*> SegmentPool::AddSegment(size_t bytes) {
  const size_t size = std::max(options_.segment_bytes, bytes);
  if (bytes_ + size > options_.max_bytes) {
    // What is unused and of another size makes room.
    for (auto it = segments_.begin(); it != segments_.end();) {
      const bool unused = (*it)->used == 0;
      if (unused) Unmap(**it);
      it = unused ? segments_.erase(it) : std::next(it);
    }
  }
  if (bytes_ + size > options_.max_bytes) {
    return absl::ResourceExhaustedError(absl::StrCat("arguments hold ", bytes_, " bytes of shared memory; ", size,
                                                     " more exceed MANTA_SHM_POOL_BYTES, ", options_.max_bytes));
  }
  auto segment = std::make_unique<Segment>();
  segment->id = next_id_++;
  segment->fd = memfd_create(SegmentName(segment->id).c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING);
  // Sealed against shrinking: a reader's map of it never loses its pages.
  if (segment->fd < 0 || posix_fallocate(segment->fd, 0, static_cast<off_t>(size)) != 0 ||
      fcntl(segment->fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    if (segment->fd >= 0) close(segment->fd);
    return absl::ResourceExhaustedError(absl::StrCat("no shared memory of ", size, " bytes: errno ", errno));
  }
  void* data = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, segment->fd, 0);
  if (data == MAP_FAILED) {
    close(segment->fd);
    return absl::ResourceExhaustedError(absl::StrCat("cannot map ", size, " bytes of shared memory: errno ", errno));
  }
  segment->bytes = size;
  segment->data = static_cast<std::byte*>(data);
  segment->free.emplace(0, size);
  bytes_ += size;
  segments_.push_back(std::move(segment));
  return segments_.back().get();
}

void SegmentPool::Free(const Region& region) {
  std::lock_guard lock(mu_);
  Segment* segment = Find(region.segment);
  MANTA_CHECK(segment != nullptr);
  GiveBack(segment, region);
}

void SegmentPool::Abandon(const Region& region) {
  std::lock_guard lock(mu_);
  Segment* segment = Find(region.segment);
  MANTA_CHECK(segment != nullptr);
  segment->abandoned = true;
  GiveBack(segment, region);
}

void SegmentPool::GiveBack(Segment* segment, const Region& region) {
  const size_t rounded = RoundUp(std::max<size_t>(region.bytes, 1), kStep);
  segment->used -= rounded;
  auto [hole, added] = segment->free.emplace(region.offset, rounded);
  MANTA_CHECK(added) << "a region was given back twice";
  const auto next = std::next(hole);
  if (next != segment->free.end() && hole->first + hole->second == next->first) {
    hole->second += next->second;
    segment->free.erase(next);
  }
  if (hole != segment->free.begin()) {
    const auto previous = std::prev(hole);
    if (previous->first + previous->second == hole->first) {
      previous->second += hole->second;
      segment->free.erase(hole);
    }
  }
  if (!segment->abandoned || segment->used > 0) return;
  Unmap(*segment);
  std::erase_if(segments_, [&](const auto& one) { return one.get() == segment; });
}

v1::ShmRef SegmentPool::Ref(const Region& region) const {
  v1::ShmRef ref;
  std::lock_guard lock(mu_);
  ref.set_pid(getpid());
  ref.set_fd(Find(region.segment)->fd);
  ref.set_segment(region.segment);
  ref.set_offset(region.offset);
  ref.set_length(region.bytes);
  return ref;
}

size_t SegmentPool::bytes() const {
  std::lock_guard lock(mu_);
  return bytes_;
}

SegmentPool::Segment* SegmentPool::Find(uint64_t id) const {
  for (const auto& segment : segments_) {
    if (segment->id == id) return segment.get();
  }
  return nullptr;
}

void SegmentPool::Unmap(Segment& segment) {
  munmap(segment.data, segment.bytes);
  close(segment.fd);
  bytes_ -= segment.bytes;
}

void CopyLarge(std::byte* to, const std::byte* from, size_t bytes) {
  if (bytes < kSharedCopy) {
    std::memcpy(to, from, bytes);
    return;
  }
  const size_t half = bytes / 2 / 4096 * 4096;
  std::thread other([=] { std::memcpy(to + half, from + half, bytes - half); });
  std::memcpy(to, from, half);
  other.join();
}

}  // namespace manta::call
