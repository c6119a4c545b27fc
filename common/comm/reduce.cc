#include "common/comm/reduce.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

namespace manta::comm {
namespace {

constexpr size_t kBlock = 1024;  // elements; the accumulator stays in the first-level cache

template <typename T>
T Max(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    if (std::isnan(a)) return a;
    if (std::isnan(b)) return b;
  }
  return a < b ? b : a;
}

template <typename T>
void Reduce(absl::Span<const void* const> sources, size_t count, ReduceOp op, void* out) {
  T accumulator[kBlock];
  for (size_t begin = 0; begin < count; begin += kBlock) {
    const size_t n = std::min(kBlock, count - begin);
    std::memcpy(accumulator, static_cast<const T*>(sources[0]) + begin, n * sizeof(T));
    for (size_t s = 1; s < sources.size(); ++s) {
      const T* source = static_cast<const T*>(sources[s]) + begin;
      if (op == ReduceOp::kSum) {
        for (size_t i = 0; i < n; ++i) accumulator[i] += source[i];
      } else {
        for (size_t i = 0; i < n; ++i) accumulator[i] = Max(accumulator[i], source[i]);
      }
    }
    std::memcpy(static_cast<T*>(out) + begin, accumulator, n * sizeof(T));
  }
}

float FromBf16(uint16_t bits) {
  const uint32_t wide = static_cast<uint32_t>(bits) << 16;
  float value;
  std::memcpy(&value, &wide, sizeof(value));
  return value;
}

uint16_t ToBf16(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  if (std::isnan(value)) return static_cast<uint16_t>((bits >> 16) | 0x40);
  return static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

void ReduceBf16(absl::Span<const void* const> sources, size_t count, ReduceOp op, void* out) {
  for (size_t i = 0; i < count; ++i) {
    float accumulator = FromBf16(static_cast<const uint16_t*>(sources[0])[i]);
    for (size_t s = 1; s < sources.size(); ++s) {
      const float value = FromBf16(static_cast<const uint16_t*>(sources[s])[i]);
      accumulator = op == ReduceOp::kSum ? accumulator + value : Max(accumulator, value);
    }
    static_cast<uint16_t*>(out)[i] = ToBf16(accumulator);
  }
}

}  // namespace

void ReduceInOrder(absl::Span<const void* const> sources, size_t count, DataType type, ReduceOp op, void* out) {
  switch (type) {
    case DataType::kF32:
      return Reduce<float>(sources, count, op, out);
    case DataType::kF64:
      return Reduce<double>(sources, count, op, out);
    case DataType::kI64:
      return Reduce<int64_t>(sources, count, op, out);
    case DataType::kBF16:
      return ReduceBf16(sources, count, op, out);
  }
}

}  // namespace manta::comm
