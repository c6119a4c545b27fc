// What is done to one row at a time on the CPU in float32: norms, rotation, SiLU, log-softmax. A row's result depends
// on that row alone. Gradients of weights sum over rows in order. Matrices are contiguous unless a stride is given.
// Thread-safe; nothing here fails.
#pragma once

#include <cstdint>

namespace manta::kernels {

// y = x * inverse * w with inverse = 1 / sqrt(mean(x^2) + eps). x, y: [rows, n]; inverse: [rows].
void RmsNormForward(int64_t rows, int64_t n, const float* x, const float* w, float eps, float* y, float* inverse);
// d_x is written; d_w [n] (or null) is added to.
void RmsNormBackward(int64_t rows, int64_t n, const float* d_y, const float* x, const float* w, const float* inverse,
                     float* d_x, float* d_w);

// Heads of the fused qkv matrix: [rows, (heads + 2 kv_heads) head_dim].
struct HeadsShape {
  int64_t heads = 0, kv_heads = 0, head_dim = 0;
};
// q, k, v out of qkv; queries and keys RMS-normalised where q_norm, k_norm [head_dim] are not null (their inverses into
// q_inverse [rows, heads], k_inverse [rows, kv_heads]), then rotated by cos, sin [rows, head_dim / 2].
void SplitNormRotateForward(int64_t rows, const HeadsShape& shape, const float* qkv, const float* q_norm,
                            const float* k_norm, float eps, const float* cos, const float* sin, float* q, float* k,
                            float* v, float* q_inverse, float* k_inverse);
// d_qkv is written; d_q_norm, d_k_norm (or null) are added to. qkv, norms and inverses may be null without norms.
void SplitNormRotateBackward(int64_t rows, const HeadsShape& shape, const float* d_q, const float* d_k,
                             const float* d_v, const float* qkv, const float* q_norm, const float* k_norm,
                             const float* q_inverse, const float* k_inverse, const float* cos, const float* sin,
                             float* d_qkv, float* d_q_norm, float* d_k_norm);

// x: [rows, 2 n], gate then up -> y: [rows, n] = silu(gate) * up.
void SiluMulForward(int64_t rows, int64_t n, const float* x, float* y);
void SiluMulBackward(int64_t rows, int64_t n, const float* d_y, const float* x, float* d_x);

// Of logits / temperature, [rows, vocab]: log_probs[r] = log softmax at targets[r], lse[r] the log of the sum,
// entropy[r] in nats (or null).
void LogSoftmaxGather(int64_t rows, int64_t vocab, const float* logits, float temperature, const int64_t* targets,
                      float* log_probs, float* lse, float* entropy);
// In place, logits -> gradient of sum_r d_log_probs[r] log_probs[r] + d_entropy[r] entropy[r]. d_log_probs or d_entropy
// (with entropy) may be null.
void LogSoftmaxGatherBackward(int64_t rows, int64_t vocab, float* logits, float temperature, const int64_t* targets,
                              const float* lse, const float* entropy, const float* d_log_probs, const float* d_entropy);

}  // namespace manta::kernels
