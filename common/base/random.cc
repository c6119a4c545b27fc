#include "common/base/random.h"

#include <cmath>
#include <numbers>

namespace manta {
namespace {

std::array<uint32_t, 4> BlockAt(uint64_t seed, uint64_t stream, uint64_t index) {
  return Philox4x32({static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32), static_cast<uint32_t>(stream),
                     static_cast<uint32_t>(stream >> 32)},
                    {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
}

uint64_t Join(uint32_t low, uint32_t high) { return static_cast<uint64_t>(high) << 32 | low; }

double ToUnit(uint64_t bits) { return static_cast<double>(bits >> 11) * 0x1.0p-53; }

}  // namespace

std::array<uint32_t, 4> Philox4x32(std::array<uint32_t, 4> c, std::array<uint32_t, 2> k) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53} * c[0];
    const uint64_t p1 = uint64_t{0xCD9E8D57} * c[2];
    c = {static_cast<uint32_t>(p1 >> 32) ^ c[1] ^ k[0], static_cast<uint32_t>(p1),
         static_cast<uint32_t>(p0 >> 32) ^ c[3] ^ k[1], static_cast<uint32_t>(p0)};
    k[0] += 0x9E3779B9;
    k[1] += 0xBB67AE85;
  }
  return c;
}

double UniformAt(uint64_t seed, uint64_t stream, uint64_t index) {
  const auto block = BlockAt(seed, stream, index);
  return ToUnit(Join(block[0], block[1]));
}

uint64_t RandomStream::NextU64() {
  const auto block = BlockAt(seed_, stream_, index_++);
  return Join(block[0], block[1]);
}

double RandomStream::NextUniform() { return ToUnit(NextU64()); }

double RandomStream::NextNormal() {
  const auto block = BlockAt(seed_, stream_, index_++);
  const double u = 1.0 - ToUnit(Join(block[0], block[1]));  // (0, 1]: its logarithm is finite
  const double v = ToUnit(Join(block[2], block[3]));
  return std::sqrt(-2.0 * std::log(u)) * std::cos(2.0 * std::numbers::pi * v);
}

uint64_t RandomStream::NextBelow(uint64_t n) {
  const uint64_t limit = ~uint64_t{0} - ~uint64_t{0} % n;  // a multiple of n: values at or above it would be biased
  uint64_t value;
  do value = NextU64();
  while (value >= limit);
  return value % n;
}

}  // namespace manta
