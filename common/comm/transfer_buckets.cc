#include "common/comm/transfer_buckets.h"

#include <algorithm>

#include "common/base/check.h"

namespace manta::comm {
namespace {

// Appends a copy, or makes the last one longer: first where they touch, then where they repeat.
void Append(std::byte* to, const std::byte* from, uint64_t bytes, std::vector<CopyRun>* copies) {
  if (bytes == 0) return;
  if (!copies->empty()) {
    CopyRun& last = copies->back();
    if (last.count == 1 && last.to + last.bytes == to && last.from + last.bytes == from) {
      last.bytes += bytes;
      return;
    }
    if (last.bytes == bytes && to > last.to && from > last.from) {
      const uint64_t to_step = static_cast<uint64_t>(to - last.to), from_step = static_cast<uint64_t>(from - last.from);
      if (last.count == 1 && to_step >= bytes && from_step >= bytes) {
        last.count = 2;
        last.to_stride = to_step;
        last.from_stride = from_step;
        return;
      }
      if (last.count > 1 && to_step == last.count * last.to_stride && from_step == last.count * last.from_stride) {
        ++last.count;
        return;
      }
    }
  }
  copies->push_back({to, from, bytes});
}

// Bytes [begin, begin + bytes) of a box between its array and a contiguous buffer.
void AppendPart(const PlacedBox& box, uint64_t begin, uint64_t bytes, std::byte* buffer, Direction direction,
                std::vector<CopyRun>* copies) {
  const uint64_t end = begin + bytes;
  ForEachRun(box.whole, box.part, [&](int64_t at, int64_t in_part, int64_t elements) {
    const uint64_t run = static_cast<uint64_t>(in_part) * box.width;
    const uint64_t first = std::max(run, begin);
    const uint64_t last = std::min(run + static_cast<uint64_t>(elements) * box.width, end);
    if (first >= last) return;
    std::byte* memory = box.data + static_cast<uint64_t>(at) * box.width + (first - run);
    std::byte* packed = buffer + (first - begin);
    if (direction == Direction::kSend) {
      Append(packed, memory, last - first, copies);
    } else {
      Append(memory, packed, last - first, copies);
    }
  });
}

uint64_t Bytes(const PlacedBox& box) {
  return static_cast<uint64_t>(box.part.Elements()) * box.width;
}

}  // namespace

bool IsContiguous(const Box& whole, const Box& part) {
  int runs = 0;
  ForEachRun(whole, part, [&](int64_t, int64_t, int64_t) { ++runs; });
  return runs <= 1;
}

void AppendCopies(const Box& source, const std::byte* from, const Box& destination, std::byte* to, const Box& part,
                  uint64_t width, std::vector<CopyRun>* copies) {
  CopyBox(source, from, destination, to, part, width, [&](void* piece_to, const void* piece_from, size_t bytes) {
    Append(static_cast<std::byte*>(piece_to), static_cast<const std::byte*>(piece_from), bytes, copies);
  });
}

uint64_t StagingBytes(absl::Span<const PlacedBox> boxes, uint64_t bucket_bytes) {
  uint64_t packed = 0;
  for (const PlacedBox& box : boxes) packed += box.direct ? 0 : Bytes(box);
  return std::min(packed, bucket_bytes);
}

std::vector<Bucket> CutBuckets(absl::Span<const PlacedBox> boxes, int peer, uint64_t bucket_bytes,
                               std::array<std::byte*, 2> staging, Direction direction) {
  MANTA_CHECK(bucket_bytes > 0);
  std::vector<Bucket> buckets;
  uint64_t room = 0, packed = 0;  // of the last bucket: bytes that it still takes, bytes of it in staging memory
  const auto close = [&] {
    if (packed > 0) buckets.back().messages.push_back({peer, staging[(buckets.size() - 1) % 2], packed});
    packed = 0;
  };
  for (const PlacedBox& box : boxes) {
    const uint64_t bytes = Bytes(box);
    for (uint64_t done = 0; done < bytes;) {
      if (room == 0) {
        if (!buckets.empty()) close();
        buckets.emplace_back();
        room = bucket_bytes;
      }
      const uint64_t take = std::min(room, bytes - done);
      Bucket& bucket = buckets.back();
      if (box.direct) {
        ForEachRun(box.whole, box.part, [&](int64_t at, int64_t, int64_t) {  // one run
          bucket.messages.push_back({peer, box.data + static_cast<uint64_t>(at) * box.width + done, take});
        });
      } else {
        AppendPart(box, done, take, staging[(buckets.size() - 1) % 2] + packed, direction, &bucket.copies);
        packed += take;
      }
      done += take;
      room -= take;
    }
  }
  if (!buckets.empty()) close();
  return buckets;
}

}  // namespace manta::comm
