#include "common/kernels/attention.h"

#include <vector>

#include "common/kernels/cpu/table.h"
#include "common/kernels/parallel.h"

namespace manta::kernels {
namespace {

// Calls `run` for every (sequence, kv head), with the head's pointers set from those of the batch.
void EachHead(cpu::AttentionHead batch, const int64_t* cu_seqlens, int64_t num_sequences,
              void (*run)(const cpu::AttentionHead&)) {
  const AttentionShape& shape = batch.shape;
  const int64_t dim = shape.head_dim, group = shape.num_heads / shape.num_kv_heads;
  batch.q_stride = shape.num_heads * dim;
  batch.kv_stride = shape.num_kv_heads * dim;
  ParallelFor(num_sequences * shape.num_kv_heads, 1, [&](int64_t begin, int64_t end) {
    thread_local std::vector<float> scratch;
    for (int64_t item = begin; item < end; ++item) {
      const int64_t first = cu_seqlens[item / shape.num_kv_heads], kv_head = item % shape.num_kv_heads;
      cpu::AttentionHead head = batch;
      head.tokens = cu_seqlens[item / shape.num_kv_heads + 1] - first;
      if (head.tokens <= 0) continue;
      scratch.resize(static_cast<size_t>(cpu::AttentionScratch(head.tokens, dim)));
      head.scratch = scratch.data();
      const int64_t at_q = first * batch.q_stride + kv_head * group * dim,
                    at_kv = first * batch.kv_stride + kv_head * dim;
      head.q += at_q;
      head.out += at_q;
      head.k += at_kv;
      head.v += at_kv;
      if (head.lse != nullptr) head.lse += first * shape.num_heads + kv_head * group;
      if (head.d_out != nullptr) {
        head.d_out += at_q;
        head.d_q += at_q;
        head.d_k += at_kv;
        head.d_v += at_kv;
      }
      run(head);
    }
  });
}

}  // namespace

void AttentionForward(const AttentionShape& shape, const int64_t* cu_seqlens, int64_t num_sequences, const float* q,
                      const float* k, const float* v, float* out, float* lse) {
  cpu::AttentionHead batch;
  batch.shape = shape;
  batch.q = q;
  batch.k = k;
  batch.v = v;
  batch.out = out;
  batch.lse = lse;
  EachHead(batch, cu_seqlens, num_sequences, cpu::Kernels().attention_forward);
}

void AttentionBackward(const AttentionShape& shape, const int64_t* cu_seqlens, int64_t num_sequences, const float* q,
                       const float* k, const float* v, const float* out, const float* lse, const float* d_out,
                       float* d_q, float* d_k, float* d_v) {
  cpu::AttentionHead batch;
  batch.shape = shape;
  batch.q = q;
  batch.k = k;
  batch.v = v;
  batch.out = const_cast<float*>(out);  // read only in backward
  batch.lse = const_cast<float*>(lse);
  batch.d_out = d_out;
  batch.d_q = d_q;
  batch.d_k = d_k;
  batch.d_v = d_v;
  EachHead(batch, cu_seqlens, num_sequences, cpu::Kernels().attention_backward);
}

}  // namespace manta::kernels
