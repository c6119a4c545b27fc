// Causal attention over packed sequences on the CPU in float32, forward and backward, batch-invariant.
//
// A query's sums run over keys in ascending position, in lanes given by the key's position modulo 16: neither the other
// sequences nor how queries are cut into blocks or chunks changes a bit. Thread-safe; nothing here fails.
#pragma once

#include <cstdint>

namespace manta::kernels {

struct AttentionShape {
  int64_t num_heads = 0;
  int64_t num_kv_heads = 0;  // divides num_heads
  int64_t head_dim = 0;
  float scale = 1;     // multiplies the scores
  int64_t window = 0;  // query i sees key j when 0 <= i - j < window; 0: all before it
};

// q, out: [tokens, num_heads, head_dim]; k, v: [tokens, num_kv_heads, head_dim]; all contiguous.
// cu_seqlens: [num_sequences + 1]. lse: [tokens, num_heads], log of the sum of exp(scores), or null.
void AttentionForward(const AttentionShape& shape, const int64_t* cu_seqlens, int64_t num_sequences, const float* q,
                      const float* k, const float* v, float* out, float* lse);

// Gradients of q, k, v from that of out. They are written, not added to.
void AttentionBackward(const AttentionShape& shape, const int64_t* cu_seqlens, int64_t num_sequences, const float* q,
                       const float* k, const float* v, const float* out, const float* lse, const float* d_out,
                       float* d_q, float* d_k, float* d_v);

}  // namespace manta::kernels
