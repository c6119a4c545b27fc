#include "worker_gen/runner/paged_attention_kernel.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "worker_gen/sampling/weights.h"

namespace manta::gen {
namespace {

using Floats = float __attribute__((vector_size(64)));
constexpr int32_t kLanes = 16;

inline __attribute__((always_inline)) float Dot(const float* a, const float* b, int32_t n) {
  Floats sum = {};
  int32_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    Floats x, y;
    std::memcpy(&x, a + i, sizeof(x));
    std::memcpy(&y, b + i, sizeof(y));
    sum += x * y;
  }
  float total = 0;
  for (int32_t half = kLanes / 2; half > 0; half /= 2) {
    for (int32_t j = 0; j < half; ++j) sum[j] += sum[j + half];
  }
  total = sum[0];
  for (; i < n; ++i) total += a[i] * b[i];
  return total;
}

// Keys, respectively values, of one kv head at every position from `first` on.
struct HeadCache {
  const float* cache;
  const int32_t* blocks;
  int32_t block_size;
  int32_t slot;    // floats a position
  int32_t offset;  // of the head in it
  const float* At(int32_t position) const {
    return cache + (static_cast<int64_t>(blocks[position / block_size]) * block_size + position % block_size) * slot +
           offset;
  }
};

__attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default"))) void Scores(const HeadCache& keys,
                                                                                          const float* query,
                                                                                          int32_t head_dim, float scale,
                                                                                          int32_t first, int32_t count,
                                                                                          float* scores) {
  for (int32_t j = 0; j < count; ++j) scores[j] = Dot(query, keys.At(first + j), head_dim) * scale;
}

__attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default"))) void Mix(const HeadCache& values,
                                                                                       const float* weights,
                                                                                       int32_t head_dim, float scale,
                                                                                       int32_t first, int32_t count,
                                                                                       float* out) {
  int32_t d = 0;
  for (; d + kLanes <= head_dim; d += kLanes) {
    Floats sum = {};
    for (int32_t j = 0; j < count; ++j) {
      Floats v;
      std::memcpy(&v, values.At(first + j) + d, sizeof(v));
      sum += weights[j] * v;
    }
    sum *= scale;
    std::memcpy(out + d, &sum, sizeof(sum));
  }
  for (; d < head_dim; ++d) {
    float sum = 0;
    for (int32_t j = 0; j < count; ++j) sum += weights[j] * values.At(first + j)[d];
    out[d] = sum * scale;
  }
}

}  // namespace

void AttendPaged(const PagedAttentionShape& shape, const float* query, const float* key_cache, const float* value_cache,
                 const int32_t* blocks, int32_t position, float* out) {
  thread_local std::vector<float> scores;
  thread_local RowWeights weights;
  const int32_t first = shape.window > 0 ? std::max(position - shape.window + 1, 0) : 0;
  const int32_t count = position - first + 1;
  const int32_t slot = shape.num_kv_heads * shape.head_dim, group = shape.num_heads / shape.num_kv_heads;
  scores.resize(count);
  for (int32_t head = 0; head < shape.num_heads; ++head) {
    const int32_t offset = head / group * shape.head_dim;
    const HeadCache keys{key_cache, blocks, shape.block_size, slot, offset};
    const HeadCache values{value_cache, blocks, shape.block_size, slot, offset};
    Scores(keys, query + head * shape.head_dim, shape.head_dim, shape.scale, first, count, scores.data());
    ComputeWeights(scores, RowMax(scores), 1.0f, weights);
    Mix(values, weights.weights.data(), shape.head_dim, static_cast<float>(1.0 / weights.total), first, count,
        out + head * shape.head_dim);
  }
}

}  // namespace manta::gen
