// Attention over a paged cache on the CPU in float32: storing keys and values, and one query a token.
//
// A block holds the keys and values of `block_size` consecutive positions. Keys lie transposed, sixteen positions side by
// side ([num_kv_heads, tiles, head_dim, 16], tiles = ceil(block_size / 16)), so that the scores of sixteen keys are one
// vector and no sum crosses lanes; values lie [block_size, num_kv_heads, head_dim].
//
// A query's sums run in the order of the kernel for packed sequences (attention.h): over keys in ascending position, in
// lanes given by the position modulo 16. Where block_size is a multiple of 16 the two agree bit for bit, and neither
// blocks, chunks nor neighbours change a bit. Thread-safe where the calls' tokens and blocks differ; nothing here fails.
#pragma once

#include <cstdint>

#include "common/kernels/attention.h"

namespace manta::kernels {

// Of one layer.
struct PagedCache {
  int64_t block_size = 0;
  float* keys = nullptr;    // [num_blocks, BlockFloats()]
  float* values = nullptr;  // the same
};

// Floats between one block's keys (or values) and the next one's.
int64_t PagedBlockFloats(const AttentionShape& shape, int64_t block_size);

// The tokens of a step: token t is at positions[t] of the sequence whose block table is blocks[t].
struct PagedTokens {
  int64_t num_tokens = 0;
  const int32_t* const* blocks = nullptr;
  const int32_t* positions = nullptr;
};

// k, v: [num_tokens, num_kv_heads, head_dim] -> the cache.
void StorePaged(const AttentionShape& shape, const PagedTokens& tokens, const float* k, const float* v,
                const PagedCache& cache);

// q, out: [num_tokens, num_heads, head_dim]. Token t attends to the positions of its sequence up to and with its own.
void AttendPaged(const AttentionShape& shape, const PagedTokens& tokens, const float* q, const PagedCache& cache,
                 float* out);

}  // namespace manta::kernels
