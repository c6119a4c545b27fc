#include "common/kernels/paged_attention.h"

#include <algorithm>

#include "common/kernels/cpu/table.h"
#include "common/kernels/parallel.h"

namespace manta::kernels {
namespace {

// Multiply-adds of attention that are worth a thread.
constexpr int64_t kWorthAThread = 40'000;

}  // namespace

int64_t PagedBlockFloats(const AttentionShape& shape, int64_t block_size) {
  return (block_size + 15) / 16 * 16 * shape.num_kv_heads * shape.head_dim;
}

void StorePaged(const AttentionShape& shape, const PagedTokens& tokens, const float* k, const float* v,
                const PagedCache& cache) {
  cpu::Kernels().store_paged(shape, tokens, k, v, cache);
}

void AttendPaged(const AttentionShape& shape, const PagedTokens& tokens, const float* q, const PagedCache& cache,
                 float* out) {
  int64_t keys = 0;
  for (int64_t t = 0; t < tokens.num_tokens; ++t) keys += tokens.positions[t] + 1;
  const int64_t cost = 2 * keys * shape.num_heads * shape.head_dim / std::max<int64_t>(tokens.num_tokens, 1) + 1;
  const int64_t row = shape.num_heads * shape.head_dim;
  ParallelFor(tokens.num_tokens, (kWorthAThread + cost - 1) / cost, [&](int64_t begin, int64_t end) {
    cpu::Kernels().attend_paged(shape, {end - begin, tokens.blocks + begin, tokens.positions + begin}, q + begin * row,
                                cache, out + begin * row);
  });
}

}  // namespace manta::kernels
