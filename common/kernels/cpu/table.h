// The functions that are compiled once per instruction set, and the choice among them. Internal to common/kernels.
#pragma once

#include <cstdint>

#include "common/kernels/attention.h"
#include "common/kernels/gemm.h"
#include "common/kernels/paged_attention.h"
#include "common/kernels/rows.h"

namespace manta::kernels::cpu {

// One sequence and one kv head: keys and values of all its tokens, queries of those from `first_query` on. Pointers are
// at their first token, `*_stride` floats between tokens. Backward adds to d_k and d_v.
struct AttentionHead {
  AttentionShape shape;
  int64_t tokens = 0, first_query = 0;
  int64_t q_stride = 0, kv_stride = 0;                   // of q, out, d_out, d_q; of k, v, d_k, d_v
  const float *q = nullptr, *k = nullptr, *v = nullptr;  // q at the group's first head
  float* out = nullptr;
  float* lse = nullptr;  // [queries, num_heads] at the group's first head
  const float* d_out = nullptr;
  float *d_q = nullptr, *d_k = nullptr, *d_v = nullptr;
  // [ceil(tokens / 16) * head_dim * 16] twice, then [8, ceil(tokens / 16) * 16]
  float* scratch = nullptr;
};
int64_t AttentionScratch(int64_t tokens, int64_t head_dim);

struct Table {
  // Columns [n_begin, n_end) of y, n_begin a multiple of kPanel; b is packed from `packed` or, where that is null, read
  // through `b`.
  void (*gemm)(int64_t m, int64_t n_begin, int64_t n_end, int64_t k, MatrixView a, MatrixView b, const float* packed,
               const float* bias, bool accumulate, float* y, int64_t ldy);
  // Panel `panel` of b [k, n] into out [k, kPanel].
  void (*pack)(MatrixView b, int64_t panel, int64_t n, int64_t k_begin, int64_t k_end, float* out);
  void (*attention_forward)(const AttentionHead& head);
  void (*attention_backward)(const AttentionHead& head);
  decltype(&kernels::StorePaged) store_paged;
  decltype(&kernels::AttendPaged) attend_paged;
  decltype(&kernels::RmsNormForward) rms_norm_forward;
  void (*rms_norm_backward)(int64_t rows, int64_t n, const float* d_y, int64_t ld_dy, const float* x, int64_t ldx,
                            const float* w, const float* inverse, float* d_x, int64_t ld_dx, float* d_w);
  decltype(&kernels::SplitNormRotateForward) split_forward;
  decltype(&kernels::SplitNormRotateBackward) split_backward;
  decltype(&kernels::SiluMulForward) silu_mul_forward;
  decltype(&kernels::SiluMulBackward) silu_mul_backward;
  decltype(&kernels::LogSoftmaxGather) log_softmax_gather;
  decltype(&kernels::LogSoftmaxGatherBackward) log_softmax_gather_backward;
};

const Table& Avx512Table();
const Table& Avx2Table();
const Table& GenericTable();

// The best that this machine has; MANTA_ISA=avx512|avx2|generic in the environment asks for less.
const Table& Kernels();

}  // namespace manta::kernels::cpu
