// Causal attention over packed sequences on the CPU in float32, forward and backward, batch-invariant.
//
// A query's sums run over keys in ascending position, in lanes given by the key's position modulo 16: neither the other
// sequences nor how queries are cut into blocks or chunks, nor where the rows before it lie, changes a bit.
// Thread-safe; nothing here fails.
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

// Sequence s has the rows [cu_seqlens[s], cu_seqlens[s + 1]) to itself and sees before them those of its prefix,
// prefix_rows[cu_prefixes[s]] and on, oldest first. A prefix's rows are of sequences between s and the nearest one
// before it that has no prefix; that one begins a tree, and trees share nothing.
struct AttentionRows {
  int64_t num_sequences = 0;
  const int64_t* cu_seqlens = nullptr;   // [num_sequences + 1]
  const int64_t* cu_prefixes = nullptr;  // [num_sequences + 1]; null: no sequence has a prefix
  const int64_t* prefix_rows = nullptr;  // [cu_prefixes[num_sequences]]
};

// q, out: [tokens, num_heads, head_dim]; k, v: [tokens, num_kv_heads, head_dim]; all contiguous. lse: [tokens,
// num_heads], log of the sum of exp(scores), or null.
void AttentionForward(const AttentionShape& shape, const AttentionRows& rows, const float* q, const float* k,
                      const float* v, float* out, float* lse);

// Gradients of q, k, v from that of out. They are written, not added to.
void AttentionBackward(const AttentionShape& shape, const AttentionRows& rows, const float* q, const float* k,
                       const float* v, const float* out, const float* lse, const float* d_out, float* d_q, float* d_k,
                       float* d_v);

}  // namespace manta::kernels
