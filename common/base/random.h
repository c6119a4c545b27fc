// Counter-based random numbers: Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011).
//
// A draw is a pure function of (seed, stream, index), so a sampled token depends on its request's seed and its position
// and never on what else is in the batch, on any device. Values, not thread-safe objects: no state is shared.
#pragma once

#include <array>
#include <cstdint>

namespace manta {

// The 128-bit block at `counter` under `key`.
std::array<uint32_t, 4> Philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

// A uniform double in [0, 1) with 53 random bits: draw `index` of `stream` under `seed`.
double UniformAt(uint64_t seed, uint64_t stream, uint64_t index);

// A sequential view of one stream, for shuffles and initialisation. Its whole state is (seed, stream, index).
class RandomStream {
 public:
  explicit RandomStream(uint64_t seed, uint64_t stream = 0, uint64_t index = 0)
      : seed_(seed), stream_(stream), index_(index) {}
  uint64_t NextU64();
  double NextUniform();             // [0, 1)
  double NextNormal();              // standard normal (Box-Muller, one value per draw)
  uint64_t NextBelow(uint64_t n);   // [0, n), unbiased; n > 0
  uint64_t index() const { return index_; }

 private:
  uint64_t seed_, stream_, index_;
};

}  // namespace manta
