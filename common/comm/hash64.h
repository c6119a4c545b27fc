// Hash64: a fast 64-bit hash of bytes, to notice data that arrived damaged. Not for secrets, not stable between
// versions of Manta: both ends of a transfer are of one build. Values, not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>

namespace manta::comm {

// Fed in pieces of any sizes; the result depends on the bytes alone. Four independent lanes of multiply-and-rotate take
// 8 bytes each, so that the multiplier's latency is hidden.
class Hash64 {
 public:
  void Update(const void* data, size_t bytes);
  // Never 0: a 0 says that no hash was computed.
  uint64_t Finish() const;

  static uint64_t Of(const void* data, size_t bytes) {
    Hash64 hash;
    hash.Update(data, bytes);
    return hash.Finish();
  }

 private:
  void Block(const unsigned char* at);

  uint64_t lanes_[4] = {0x243f6a8885a308d3, 0x13198a2e03707344, 0xa4093822299f31d0, 0x082efa98ec4e6c89};  // of pi
  unsigned char rest_[32] = {};
  size_t rest_bytes_ = 0;
  uint64_t total_ = 0;
};

}  // namespace manta::comm
