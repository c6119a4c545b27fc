#include "worker_gen/sampling/weights.h"

#include <cmath>
#include <cstring>
#include <limits>

namespace manta::gen {
namespace {

// Sixteen lanes in GCC's vector notation: one AVX-512 register, or what the machine has in its place.
using Floats = float __attribute__((vector_size(64)));
using Ints = int32_t __attribute__((vector_size(64)));
constexpr int32_t kLanes = 16;

// By value through memory: vectors as arguments would tie the calling convention to the instruction set.
inline __attribute__((always_inline)) void Load(const float* from, Floats& to) {
  std::memcpy(&to, from, sizeof(to));
}

// exp(x) for x <= 0, 0 below -87: 2^n * p(r) with x = n ln 2 + r, |r| <= ln(2)/2, p of degree 6 (Cephes' coefficients).
inline __attribute__((always_inline)) void Exp(Floats& x) {
  const Ints keep = x > -87.0f;
  const Floats scaled = x * 1.44269504088896341f;
  // Rounds to the nearest integer by adding 1.5 * 2^23.
  const Floats shifted = scaled + 12582912.0f;
  const Floats n = shifted - 12582912.0f;
  const Floats r = x - n * 0.693359375f - n * -2.12194440e-4f;
  Floats p = r * 1.9875691500e-4f + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
  const Ints exponent = (__builtin_convertvector(n, Ints) + 127) << 23;
  Floats power;
  std::memcpy(&power, &exponent, sizeof(power));
  p *= power;
  Ints bits;
  std::memcpy(&bits, &p, sizeof(bits));
  bits &= keep;
  std::memcpy(&x, &bits, sizeof(x));
}

inline __attribute__((always_inline)) float Sum(const Floats& v) {
  float halves[8];
  for (int i = 0; i < 8; ++i) halves[i] = v[i] + v[i + 8];
  for (int i = 0; i < 4; ++i) halves[i] += halves[i + 4];
  return (halves[0] + halves[2]) + (halves[1] + halves[3]);
}

__attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default"))) double FillBlocks(
    const float* row, int64_t num_blocks, float max, float scale, float* weights, double* block_sums) {
  double total = 0;
  for (int64_t b = 0; b < num_blocks; ++b) {
    Floats sum = {};
    for (int32_t i = 0; i < kWeightBlock; i += kLanes) {
      Floats x;
      Load(row + b * kWeightBlock + i, x);
      x = (x - max) * scale;
      Exp(x);
      std::memcpy(weights + b * kWeightBlock + i, &x, sizeof(x));
      sum += x;
    }
    block_sums[b] = Sum(sum);
    total += block_sums[b];
  }
  return total;
}

__attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default"))) float MaxOf(const float* row,
                                                                                          int64_t size) {
  float best = -std::numeric_limits<float>::infinity();
  bool nan = false;
  int64_t i = 0;
  if (size >= kLanes) {
    Floats lanes;
    Load(row, lanes);
    Ints unordered = lanes != lanes;
    for (; i + kLanes <= size; i += kLanes) {
      Floats x;
      Load(row + i, x);
      unordered |= x != x;
      lanes = x > lanes ? x : lanes;
    }
    for (int lane = 0; lane < kLanes; ++lane) {
      best = lanes[lane] > best ? lanes[lane] : best;
      nan |= unordered[lane] != 0;
    }
  }
  for (; i < size; ++i) {
    nan |= row[i] != row[i];
    best = row[i] > best ? row[i] : best;
  }
  return nan ? std::numeric_limits<float>::quiet_NaN() : best;
}

}  // namespace

float RowMax(absl::Span<const float> row) {
  return MaxOf(row.data(), static_cast<int64_t>(row.size()));
}

void ComputeWeights(absl::Span<const float> row, float max, float scale, RowWeights& out) {
  const int64_t size = static_cast<int64_t>(row.size());
  const int64_t whole = size / kWeightBlock;
  const int64_t num_blocks = (size + kWeightBlock - 1) / kWeightBlock;
  out.weights.resize(num_blocks * kWeightBlock);
  out.block_sums.resize(num_blocks);
  out.total = FillBlocks(row.data(), whole, max, scale, out.weights.data(), out.block_sums.data());
  if (whole == num_blocks) return;
  float tail[kWeightBlock];  // padded with what has no weight
  for (int32_t i = 0; i < kWeightBlock; ++i) {
    const int64_t at = whole * kWeightBlock + i;
    tail[i] = at < size ? row[at] : -std::numeric_limits<float>::infinity();
  }
  out.total += FillBlocks(tail, 1, max, scale, out.weights.data() + whole * kWeightBlock, &out.block_sums[whole]);
}

}  // namespace manta::gen
