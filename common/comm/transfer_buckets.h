// How a list of boxes is cut into the buckets that go from one GPU to another.
//
// Sender and receiver compute the same cuts, each for its own memory: a bucket is some bytes of consecutive boxes.
// Boxes that lie in one piece on both sides go as they are, from memory to memory; the small and the scattered are
// packed into staging memory, so that a message is large and a bucket has at most one of them. Pure functions.
#pragma once

#include <array>

#include "common/comm/box.h"
#include "common/comm/device_transport.h"

namespace manta::comm {

// One box in this side's memory.
struct PlacedBox {
  Box whole;                  // what `data` holds, row-major
  std::byte* data = nullptr;  // only read where it is sent
  Box part;
  uint64_t width = 0;  // bytes of an element
  bool direct = false;
};

// Whether the elements of `part` lie in one piece in the array of `whole`.
bool IsContiguous(const Box& whole, const Box& part);

// `part` of both arrays, as copies from one to the other; runs of the same length and distance make one copy.
void AppendCopies(const Box& source, const std::byte* from, const Box& destination, std::byte* to, const Box& part,
                  uint64_t width, std::vector<CopyRun>* copies);

enum class Direction { kSend, kReceive };

// Bytes of staging memory that a slot needs for these boxes.
uint64_t StagingBytes(absl::Span<const PlacedBox> boxes, uint64_t bucket_bytes);

// Buckets of at most `bucket_bytes`, to or from `peer`. `staging`: the memory for even and for odd buckets.
std::vector<Bucket> CutBuckets(absl::Span<const PlacedBox> boxes, int peer, uint64_t bucket_bytes,
                               std::array<std::byte*, 2> staging, Direction direction);

}  // namespace manta::comm
