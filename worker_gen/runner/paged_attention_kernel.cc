#include "worker_gen/runner/paged_attention_kernel.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "worker_gen/sampling/weights.h"

namespace manta::gen {
namespace {

using Floats = float __attribute__((vector_size(64)));
using Ints = int32_t __attribute__((vector_size(64)));
constexpr int32_t kLanes = 16;
constexpr int32_t kMostQueries = 4;  // of one kv head that share what is loaded

#define MANTA_ALWAYS_INLINE inline __attribute__((always_inline))

// lanes floats, zeros beyond.
MANTA_ALWAYS_INLINE void LoadPart(const float* from, int32_t lanes, Floats& to) {
  if (lanes >= kLanes) {
    std::memcpy(&to, from, sizeof(to));
  } else {
    to = Floats{};
    std::memcpy(&to, from, lanes * sizeof(float));
  }
}

// Sums of the lanes of 16 vectors, in place to rows[0]: lane i is that of rows[i]. Every vector's lanes are added in
// the same order: i and i + 8, then i and i + 4, and so on.
MANTA_ALWAYS_INLINE void SumLanes(Floats* rows) {
  const Ints low8 = {0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23};
  const Ints low4 = {0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27};
  const Ints low2 = {0, 1, 4, 5, 8, 9, 12, 13, 16, 17, 20, 21, 24, 25, 28, 29};
  const Ints low1 = {0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30};
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i)
    rows[i] = __builtin_shuffle(rows[2 * i], rows[2 * i + 1], low8) +
              __builtin_shuffle(rows[2 * i], rows[2 * i + 1], low8 + 8);
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i)
    rows[i] = __builtin_shuffle(rows[2 * i], rows[2 * i + 1], low4) +
              __builtin_shuffle(rows[2 * i], rows[2 * i + 1], low4 + 4);
#pragma GCC unroll 2
  for (int i = 0; i < 2; ++i)
    rows[i] = __builtin_shuffle(rows[2 * i], rows[2 * i + 1], low2) +
              __builtin_shuffle(rows[2 * i], rows[2 * i + 1], low2 + 2);
  rows[0] = __builtin_shuffle(rows[0], rows[1], low1) + __builtin_shuffle(rows[0], rows[1], low1 + 1);
}

// scores[j] = query . key at offsets[j], times scale, for j < count; up to 15 more floats are written.
__attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default"))) void Scores(
    const float* keys, const int64_t* offsets, const float* query, int32_t head_dim, float scale, int32_t count,
    float* scores) {
  for (int32_t j = 0; j < count; j += kLanes) {
    Floats sums[kLanes] = {};
    for (int32_t d = 0; d < head_dim; d += kLanes) {
      Floats q;
      LoadPart(query + d, head_dim - d, q);
#pragma GCC unroll 16
      for (int32_t i = 0; i < kLanes; ++i) {
        Floats k;
        LoadPart(keys + offsets[std::min(j + i, count - 1)] + d, head_dim - d, k);
        sums[i] += q * k;
      }
    }
    SumLanes(sums);
    sums[0] *= scale;
    std::memcpy(scores + j, &sums[0], sizeof(sums[0]));
  }
}

template <int kQueries>
MANTA_ALWAYS_INLINE void MixQueries(const float* values, const int64_t* offsets, const float* const* weights,
                                    const float* factors, int32_t head_dim, int32_t count, float* out) {
  for (int32_t d = 0; d < head_dim; d += kLanes) {
    Floats sums[kQueries] = {};
    for (int32_t j = 0; j < count; ++j) {
      Floats v;
      LoadPart(values + offsets[j] + d, head_dim - d, v);
#pragma GCC unroll 4
      for (int g = 0; g < kQueries; ++g) sums[g] += weights[g][j] * v;
    }
    for (int g = 0; g < kQueries; ++g) {
      sums[g] *= factors[g];
      std::memcpy(out + g * head_dim + d, &sums[g], std::min(head_dim - d, kLanes) * sizeof(float));
    }
  }
}

// out[g] = factors[g] times the sum over j of weights[g][j] and the value at offsets[j], in the order of j.
__attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default"))) void Mix(
    const float* values, const int64_t* offsets, const float* const* weights, const float* factors, int32_t num_queries,
    int32_t head_dim, int32_t count, float* out) {
  switch (num_queries) {
    case 1:
      return MixQueries<1>(values, offsets, weights, factors, head_dim, count, out);
    case 2:
      return MixQueries<2>(values, offsets, weights, factors, head_dim, count, out);
    case 3:
      return MixQueries<3>(values, offsets, weights, factors, head_dim, count, out);
    default:
      return MixQueries<4>(values, offsets, weights, factors, head_dim, count, out);
  }
}

}  // namespace

void AttendPaged(const PagedAttentionShape& shape, const float* query, const float* key_cache, const float* value_cache,
                 const int32_t* blocks, int32_t position, float* out) {
  thread_local std::vector<float> scores;
  thread_local std::vector<int64_t> offsets;  // of each position that is seen, in floats
  thread_local RowWeights weights[kMostQueries];
  const int32_t first = shape.window > 0 ? std::max(position - shape.window + 1, 0) : 0;
  const int32_t count = position - first + 1, dim = shape.head_dim;
  const int32_t slot = shape.num_kv_heads * dim, group = shape.num_heads / shape.num_kv_heads;
  scores.resize(count + kLanes);
  offsets.clear();
  for (int32_t p = first; p <= position;) {
    const int64_t block = static_cast<int64_t>(blocks[p / shape.block_size]) * shape.block_size;
    const int32_t end = std::min(position + 1, (p / shape.block_size + 1) * shape.block_size);
    for (; p < end; ++p) offsets.push_back((block + p % shape.block_size) * slot);
  }
  for (int32_t head = 0; head < shape.num_heads;) {
    const int32_t num_queries = std::min(group - head % group, kMostQueries), kv = head / group * dim;
    const float* weight_rows[kMostQueries];
    float factors[kMostQueries];
    for (int32_t g = 0; g < num_queries; ++g) {
      Scores(key_cache + kv, offsets.data(), query + (head + g) * dim, dim, shape.scale, count, scores.data());
      const auto row = absl::MakeConstSpan(scores.data(), count);
      ComputeWeights(row, RowMax(row), 1.0f, weights[g]);
      weight_rows[g] = weights[g].weights.data();
      factors[g] = static_cast<float>(1.0 / weights[g].total);
    }
    Mix(value_cache + kv, offsets.data(), weight_rows, factors, num_queries, dim, count, out + head * dim);
    head += num_queries;
  }
}

}  // namespace manta::gen
