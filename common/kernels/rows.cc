#include "common/kernels/rows.h"

#include "common/kernels/cpu/table.h"
#include "common/kernels/parallel.h"

namespace manta::kernels {
namespace {
// Floats of a row operation that are worth a thread.
constexpr int64_t kGrain = 8'192;
int64_t RowsGrain(int64_t n) {
  return (kGrain + n - 1) / (n > 0 ? n : 1);
}
float* Offset(float* p, int64_t n) {
  return p == nullptr ? nullptr : p + n;
}
const float* Offset(const float* p, int64_t n) {
  return p == nullptr ? nullptr : p + n;
}
}  // namespace

void RmsNormForward(int64_t rows, int64_t n, const float* x, const float* w, float eps, float* y, float* inverse) {
  ParallelFor(rows, RowsGrain(n), [&](int64_t b, int64_t e) {
    cpu::Kernels().rms_norm_forward(e - b, n, x + b * n, w, eps, y + b * n, inverse + b);
  });
}

void RmsNormBackward(int64_t rows, int64_t n, const float* d_y, const float* x, const float* w, const float* inverse,
                     float* d_x, float* d_w) {
  // One thread: d_w sums over the rows in order.
  cpu::Kernels().rms_norm_backward(rows, n, d_y, n, x, n, w, inverse, d_x, n, d_w);
}

void SplitNormRotateForward(int64_t rows, const HeadsShape& s, const float* qkv, const float* q_norm,
                            const float* k_norm, float eps, const float* cos, const float* sin, float* q, float* k,
                            float* v, float* q_inverse, float* k_inverse) {
  const int64_t half = s.head_dim / 2, q_size = s.heads * s.head_dim, kv_size = s.kv_heads * s.head_dim;
  ParallelFor(rows, RowsGrain(q_size), [&](int64_t b, int64_t e) {
    cpu::Kernels().split_forward(e - b, s, qkv + b * (q_size + 2 * kv_size), q_norm, k_norm, eps, cos + b * half,
                                 sin + b * half, q + b * q_size, k + b * kv_size, v + b * kv_size,
                                 Offset(q_inverse, b * s.heads), Offset(k_inverse, b * s.kv_heads));
  });
}

void SplitNormRotateBackward(int64_t rows, const HeadsShape& s, const float* d_q, const float* d_k, const float* d_v,
                             const float* qkv, const float* q_norm, const float* k_norm, const float* q_inverse,
                             const float* k_inverse, const float* cos, const float* sin, float* d_qkv, float* d_q_norm,
                             float* d_k_norm) {
  cpu::Kernels().split_backward(rows, s, d_q, d_k, d_v, qkv, q_norm, k_norm, q_inverse, k_inverse, cos, sin, d_qkv,
                                d_q_norm, d_k_norm);
}

void SiluMulForward(int64_t rows, int64_t n, const float* x, float* y) {
  ParallelFor(rows, RowsGrain(n),
              [&](int64_t b, int64_t e) { cpu::Kernels().silu_mul_forward(e - b, n, x + 2 * b * n, y + b * n); });
}

void SiluMulBackward(int64_t rows, int64_t n, const float* d_y, const float* x, float* d_x) {
  ParallelFor(rows, RowsGrain(n), [&](int64_t b, int64_t e) {
    cpu::Kernels().silu_mul_backward(e - b, n, d_y + b * n, x + 2 * b * n, d_x + 2 * b * n);
  });
}

void LogSoftmaxGather(int64_t rows, int64_t vocab, const float* logits, float temperature, const int64_t* targets,
                      float* log_probs, float* lse, float* entropy) {
  ParallelFor(rows, RowsGrain(vocab), [&](int64_t b, int64_t e) {
    cpu::Kernels().log_softmax_gather(e - b, vocab, logits + b * vocab, temperature, targets + b, log_probs + b,
                                      lse + b, Offset(entropy, b));
  });
}

void LogSoftmaxGatherBackward(int64_t rows, int64_t vocab, float* logits, float temperature, const int64_t* targets,
                              const float* lse, const float* entropy, const float* d_log_probs,
                              const float* d_entropy) {
  ParallelFor(rows, RowsGrain(vocab), [&](int64_t b, int64_t e) {
    cpu::Kernels().log_softmax_gather_backward(e - b, vocab, logits + b * vocab, temperature, targets + b, lse + b,
                                               Offset(entropy, b), Offset(d_log_probs, b), Offset(d_entropy, b));
  });
}

}  // namespace manta::kernels
