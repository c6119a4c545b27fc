#include "common/kernels/attention.h"

#include <algorithm>
#include <vector>

#include "common/kernels/cpu/table.h"
#include "common/kernels/parallel.h"

namespace manta::kernels {
namespace {

// One sequence's rows: its prefix and its own.
struct Path {
  const int64_t* prefix = nullptr;
  int64_t prefix_size = 0, first = 0, own = 0;

  int64_t tokens() const { return prefix_size + own; }
  // Whether the prefix lies right before the sequence's own rows.
  bool contiguous() const {
    for (int64_t i = 0; i < prefix_size; ++i) {
      if (prefix[i] != first - prefix_size + i) return false;
    }
    return true;
  }
  int64_t row(int64_t i) const { return i < prefix_size ? prefix[i] : first + i - prefix_size; }
};

Path PathOf(const AttentionRows& rows, int64_t s) {
  Path path;
  path.first = rows.cu_seqlens[s];
  path.own = rows.cu_seqlens[s + 1] - path.first;
  if (rows.cu_prefixes == nullptr) return path;
  path.prefix = rows.prefix_rows + rows.cu_prefixes[s];
  path.prefix_size = rows.cu_prefixes[s + 1] - rows.cu_prefixes[s];
  return path;
}

void GatherRows(const Path& path, const float* x, int64_t stride, int64_t dim, float* out) {
  for (int64_t i = 0; i < path.tokens(); ++i) std::copy_n(x + path.row(i) * stride, dim, out + i * dim);
}

void AddRows(const Path& path, const float* x, int64_t dim, float* out, int64_t stride) {
  for (int64_t i = 0; i < path.tokens(); ++i, x += dim) {
    float* row = out + path.row(i) * stride;
    for (int64_t d = 0; d < dim; ++d) row[d] += x[d];
  }
}

// Runs one sequence and kv head; `batch` has the batch's pointers and strides.
void RunPath(const cpu::AttentionHead& batch, const Path& path, int64_t kv_head,
             void (*run)(const cpu::AttentionHead&)) {
  if (path.own <= 0) return;
  const AttentionShape& shape = batch.shape;
  const int64_t dim = shape.head_dim, group = shape.num_heads / shape.num_kv_heads, tokens = path.tokens();
  const bool backward = batch.d_out != nullptr, contiguous = path.contiguous();
  cpu::AttentionHead head = batch;
  head.tokens = tokens;
  head.first_query = path.prefix_size;
  const int64_t at_q = path.first * batch.q_stride + kv_head * group * dim;
  head.q += at_q;
  head.out += at_q;
  if (head.lse != nullptr) head.lse += path.first * shape.num_heads + kv_head * group;
  if (backward) {
    head.d_out += at_q;
    head.d_q += at_q;
  }
  const int64_t own_scratch = cpu::AttentionScratch(tokens, dim), gathered = contiguous ? 0 : tokens * dim;
  thread_local std::vector<float> scratch;
  const auto needed = static_cast<size_t>(own_scratch + (backward ? 4 : 2) * gathered);
  if (scratch.size() < needed) scratch.resize(needed);
  head.scratch = scratch.data();
  if (contiguous) {
    const int64_t at_kv = (path.first - path.prefix_size) * batch.kv_stride + kv_head * dim;
    head.k += at_kv;
    head.v += at_kv;
    if (backward) {
      head.d_k += at_kv;
      head.d_v += at_kv;
    }
    return run(head);
  }
  float* rows = scratch.data() + own_scratch;
  GatherRows(path, batch.k + kv_head * dim, batch.kv_stride, dim, rows);
  GatherRows(path, batch.v + kv_head * dim, batch.kv_stride, dim, rows + gathered);
  head.kv_stride = dim;
  head.k = rows;
  head.v = rows + gathered;
  if (!backward) return run(head);
  head.d_k = rows + 2 * gathered;
  head.d_v = rows + 3 * gathered;
  std::fill_n(head.d_k, 2 * gathered, 0.0f);
  run(head);
  AddRows(path, head.d_k, dim, batch.d_k + kv_head * dim, batch.kv_stride);
  AddRows(path, head.d_v, dim, batch.d_v + kv_head * dim, batch.kv_stride);
}

// The first sequence of each tree, and the number of sequences.
std::vector<int64_t> TreeStarts(const AttentionRows& rows) {
  std::vector<int64_t> starts;
  for (int64_t s = 0; s < rows.num_sequences; ++s) {
    if (rows.cu_prefixes == nullptr || rows.cu_prefixes[s] == rows.cu_prefixes[s + 1] || s == 0) starts.push_back(s);
  }
  starts.push_back(rows.num_sequences);
  return starts;
}

cpu::AttentionHead Batch(const AttentionShape& shape, const float* q, const float* k, const float* v, float* out,
                         float* lse) {
  cpu::AttentionHead batch;
  batch.shape = shape;
  batch.q_stride = shape.num_heads * shape.head_dim;
  batch.kv_stride = shape.num_kv_heads * shape.head_dim;
  batch.q = q;
  batch.k = k;
  batch.v = v;
  batch.out = out;
  batch.lse = lse;
  return batch;
}

}  // namespace

void AttentionForward(const AttentionShape& shape, const AttentionRows& rows, const float* q, const float* k,
                      const float* v, float* out, float* lse) {
  const cpu::AttentionHead batch = Batch(shape, q, k, v, out, lse);
  ParallelFor(rows.num_sequences * shape.num_kv_heads, 1, [&](int64_t begin, int64_t end) {
    for (int64_t item = begin; item < end; ++item) {
      RunPath(batch, PathOf(rows, item / shape.num_kv_heads), item % shape.num_kv_heads,
              cpu::Kernels().attention_forward);
    }
  });
}

void AttentionBackward(const AttentionShape& shape, const AttentionRows& rows, const float* q, const float* k,
                       const float* v, const float* out, const float* lse, const float* d_out, float* d_q, float* d_k,
                       float* d_v) {
  // Out and lse are only read in backward.
  cpu::AttentionHead batch = Batch(shape, q, k, v, const_cast<float*>(out), const_cast<float*>(lse));
  batch.d_out = d_out;
  batch.d_q = d_q;
  batch.d_k = d_k;
  batch.d_v = d_v;
  // A tree's sequences add to the same rows: one thread takes them, one after the other.
  const std::vector<int64_t> trees = TreeStarts(rows);
  ParallelFor((static_cast<int64_t>(trees.size()) - 1) * shape.num_kv_heads, 1, [&](int64_t begin, int64_t end) {
    for (int64_t item = begin; item < end; ++item) {
      const int64_t* tree = &trees[static_cast<size_t>(item / shape.num_kv_heads)];
      const int64_t kv_head = item % shape.num_kv_heads;
      for (int64_t row = rows.cu_seqlens[tree[0]]; row < rows.cu_seqlens[tree[1]]; ++row) {
        const int64_t at = row * batch.kv_stride + kv_head * shape.head_dim;
        std::fill_n(d_k + at, shape.head_dim, 0.0f);
        std::fill_n(d_v + at, shape.head_dim, 0.0f);
      }
      for (int64_t s = tree[0]; s < tree[1]; ++s) {
        RunPath(batch, PathOf(rows, s), kv_head, cpu::Kernels().attention_backward);
      }
    }
  });
}

}  // namespace manta::kernels
