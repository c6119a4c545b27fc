// Manta's CUDA kernels as plain functions: raw device pointers, sizes, a stream. No ATen, no CUDA headers, so that
// anything can include this. The functions are in libmanta_cuda; processes reach them through the table in
// common/cuda/api.h.
//
// Each queues its work on the stream and returns at once, with a cudaError_t: 0 is success, 1 (cudaErrorInvalidValue)
// where a size is not supported. Shapes are row-major and contiguous. Sums are taken in float32 and in an order that
// depends on the sizes within a row alone: a row's result does not depend on how many rows there are. Each kernel has a
// CPU reference in tests/gpu. Thread-safe.
#pragma once

#include <cstdint>

namespace manta::kernels::cuda {

enum class Type : int { kF32 = 0, kBf16 = 1 };
using Stream = void*;  // cudaStream_t

// One AdamW update over flat arrays of n elements (Loshchilov and Hutter, arXiv 1711.05101), in the operations' order
// of worker_train/optimizer/adamw.h. Where `parameters` is not null, it receives the new masters in bf16.
struct AdamWArguments {
  float* master = nullptr;
  const float* gradient = nullptr;
  float* exp_avg = nullptr;
  float* exp_avg_sq = nullptr;
  void* parameters = nullptr;
  int64_t n = 0;
  double lr = 0, weight_decay = 0, beta1 = 0.9, beta2 = 0.999, eps = 1e-8;
  int64_t step = 1;          // from 1
  float gradient_scale = 1;  // gradients are multiplied by it first
};
int AdamW(const AdamWArguments& a, Stream stream);

// y = x / sqrt(mean(x^2) + eps) * w; x, y: [rows, n], w: [n]. `inverse`: [rows] float32, 1 / sqrt(...), for backward;
// may be null.
int RmsNorm(Type type, const void* x, const void* w, void* y, float* inverse, int64_t rows, int64_t n, float eps,
            Stream stream);
// dx: [rows, n]; dw: [n] float32 is added to (order of rows not fixed: bits of dw may differ between runs); may be
// null.
int RmsNormBackward(Type type, const void* dy, const void* x, const void* w, const float* inverse, void* dx, float* dw,
                    int64_t rows, int64_t n, Stream stream);

struct HeadShape {
  int64_t heads = 0, kv_heads = 0, head_dim = 0;  // head_dim: even, at most 256
};
// Splits qkv [rows, (heads + 2 kv_heads) * head_dim]; normalises each head of q and k where q_norm is not null (both
// [head_dim]); rotates the halves of q and k by cos, sin [rows, head_dim / 2] float32. q: [rows, heads, head_dim]; k,
// v: [rows, kv_heads, head_dim]. q_inverse [rows, heads] and k_inverse [rows, kv_heads]: of the norms, for backward;
// may be null.
int SplitNormRotate(Type type, const void* qkv, const void* q_norm, const void* k_norm, const float* cos,
                    const float* sin, void* q, void* k, void* v, float* q_inverse, float* k_inverse, int64_t rows,
                    HeadShape shape, float eps, Stream stream);

// x: [rows, 2 n], gate then up -> y: [rows, n] = silu(gate) * up.
int SiluMul(Type type, const void* x, void* y, int64_t rows, int64_t n, Stream stream);
int SiluMulBackward(Type type, const void* dy, const void* x, void* dx, int64_t rows, int64_t n, Stream stream);

// log p(target) under softmax(logits / temperature), and (may be null) the entropy in nats and log sum exp. logits:
// [rows, vocab]; targets: [rows] int64; outputs: [rows] float32.
int LogSoftmaxGather(Type type, const void* logits, const int64_t* targets, float inverse_temperature, float* log_probs,
                     float* entropy, float* log_sum, int64_t rows, int64_t vocab, Stream stream);
// d_logits [rows, vocab], may be the logits' own memory: (d_log_probs ([v = target] - p) - d_entropy p (log p +
// entropy)) / temperature. d_entropy and entropy may be null.
int LogSoftmaxGatherBackward(Type type, const void* logits, const int64_t* targets, float inverse_temperature,
                             const float* log_sum, const float* d_log_probs, const float* entropy,
                             const float* d_entropy, void* d_logits, int64_t rows, int64_t vocab, Stream stream);

// The paged cache of one layer: keys and values each [num_blocks, block_size, kv_heads, head_dim].
// Token t's k, v [tokens, kv_heads, head_dim] go to slot slots[t] = block * block_size + offset; a negative slot is
// skipped.
int WriteKvCache(Type type, const void* k, const void* v, void* k_cache, void* v_cache, const int64_t* slots,
                 int64_t tokens, int64_t kv_heads, int64_t head_dim, Stream stream);

// Causal attention of each query token over its sequence's keys in the cache, its own among them. A token's result
// depends on its own sequence alone: not on batch, chunking or block numbers.
struct PagedAttentionArguments {
  const void* q = nullptr;  // [tokens, heads, head_dim]
  const void* k_cache = nullptr;
  const void* v_cache = nullptr;
  void* out = nullptr;                      // [tokens, heads, head_dim]
  const int32_t* token_sequence = nullptr;  // [tokens]: row of block_tables
  const int32_t* token_position = nullptr;  // [tokens]: sees keys 0 .. position
  const int32_t* block_tables = nullptr;    // [sequences, max_blocks]
  int64_t tokens = 0, max_blocks = 0;
  int64_t heads = 0, kv_heads = 0, head_dim = 0;  // heads a multiple of kv_heads; head_dim at most 256
  int64_t block_size = 16;
  int64_t window = 0;  // sees the last `window` keys only; 0: all
  float scale = 1;
};
int PagedAttention(Type type, const PagedAttentionArguments& a, Stream stream);

// Draws a token a row from logits [rows, vocab] float32, as worker_gen/sampling/sampler.h does: temperature, then top-k
// (ties with the k-th are kept), top-p over what top-k kept, min-p; one uniform number in [0, 1) picks, in token order.
struct SamplingRow {
  float temperature = 1;  // 0: greedy
  int32_t top_k = 0;      // 0: off
  float top_p = 1;        // 1: off
  float min_p = 0;        // 0: off
  double uniform = 0;
};
struct SampledRow {
  int32_t token = -1;     // -1: the row's logits have no finite maximum
  float logprob = 0;      // under the distribution drawn from; 0 where greedy
  float raw_logprob = 0;  // under softmax(logits)
};
int Sample(const float* logits, const SamplingRow* rows_in, SampledRow* rows_out, int64_t rows, int64_t vocab,
           Stream stream);

}  // namespace manta::kernels::cuda
