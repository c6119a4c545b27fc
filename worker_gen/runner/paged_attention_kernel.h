// Attention of one query token over a paged cache on the CPU, in float32.
//
// Thread-safe. The order of every sum follows from the token's position and the shape alone: not from blocks, chunks or
// neighbours.
#pragma once

#include <cstdint>

namespace manta::gen {

struct PagedAttentionShape {
  int32_t num_heads = 0;
  int32_t num_kv_heads = 0;
  int32_t head_dim = 0;
  int32_t block_size = 0;
  float scale = 1;     // multiplies the scores
  int32_t window = 0;  // the last `window` positions are seen; 0: all
};

// query, out: [num_heads, head_dim]; key_cache, value_cache: [num_blocks, block_size, num_kv_heads, head_dim];
// blocks: the sequence's table. Attends to positions up to and with `position`.
void AttendPaged(const PagedAttentionShape& shape, const float* query, const float* key_cache, const float* value_cache,
                 const int32_t* blocks, int32_t position, float* out);

}  // namespace manta::gen
