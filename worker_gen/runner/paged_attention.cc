#include "worker_gen/runner/paged_attention.h"

#include <algorithm>
#include <cstring>

#include "common/kernels/parallel.h"
#include "worker_gen/runner/paged_attention_kernel.h"

namespace manta::gen {
namespace {

// Fewer are done before a second thread has woken up.
constexpr int64_t kTokensWorthAThread = 8;
constexpr int64_t kFloatsWorthAThread = 1 << 16;

}  // namespace

PagedAttention::PagedAttention(const model::ModelConfig& config, int32_t num_blocks, int32_t block_size)
    : block_size_(block_size),
      cache_(at::empty({config.num_layers, 2, num_blocks, block_size, config.num_kv_heads, config.head_dim},
                       at::kFloat)) {}

void PagedAttention::SetChunks(absl::Span<const SequenceChunk> chunks) {
  blocks_.clear();
  positions_.clear();
  for (const SequenceChunk& chunk : chunks) {
    for (size_t i = 0; i < chunk.tokens.size(); ++i) {
      blocks_.push_back(chunk.blocks.data());
      positions_.push_back(chunk.num_computed + static_cast<int32_t>(i));
    }
  }
}

at::Tensor PagedAttention::Attend(const model::AttentionSpec& spec, const at::Tensor& q, const at::Tensor& k,
                                  const at::Tensor& v) {
  const int64_t num_tokens = q.size(0), num_heads = q.size(1), num_kv_heads = k.size(1), head_dim = q.size(2);
  TORCH_CHECK(num_tokens == static_cast<int64_t>(positions_.size()), "attention over ", num_tokens, " tokens, ",
              positions_.size(), " were announced");
  const at::Tensor queries = q.contiguous(), keys = k.contiguous(), values = v.contiguous();
  at::Tensor out = at::empty({num_tokens, num_heads, head_dim}, q.options());
  const int64_t slot = num_kv_heads * head_dim, layer_bytes = cache_.stride(1);
  float* key_cache = cache_.data_ptr<float>() + spec.layer * cache_.stride(0);
  float* value_cache = key_cache + layer_bytes;
  for (int64_t t = 0; t < num_tokens; ++t) {
    const int64_t at =
        (static_cast<int64_t>(blocks_[t][positions_[t] / block_size_]) * block_size_ + positions_[t] % block_size_) *
        slot;
    std::memcpy(key_cache + at, keys.data_ptr<float>() + t * slot, slot * sizeof(float));
    std::memcpy(value_cache + at, values.data_ptr<float>() + t * slot, slot * sizeof(float));
  }
  const float* query_data = queries.const_data_ptr<float>();
  float* out_data = out.data_ptr<float>();
  const PagedAttentionShape shape{static_cast<int32_t>(num_heads), static_cast<int32_t>(num_kv_heads),
                                  static_cast<int32_t>(head_dim),  block_size_,
                                  static_cast<float>(spec.scale),  static_cast<int32_t>(spec.window)};
  kernels::ParallelFor(num_tokens, kTokensWorthAThread, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      AttendPaged(shape, query_data + t * num_heads * head_dim, key_cache, value_cache, blocks_[t], positions_[t],
                  out_data + t * num_heads * head_dim);
    }
  });
  return out;
}

void PagedAttention::CopyBlocks(absl::Span<const BlockCopy> copies) {
  const int64_t planes = cache_.size(0) * cache_.size(1), block = cache_.stride(2);
  float* data = cache_.data_ptr<float>();
  const int64_t grain = std::max<int64_t>(kFloatsWorthAThread / (planes * block), 1);
  kernels::ParallelFor(static_cast<int64_t>(copies.size()), grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      for (int64_t plane = 0; plane < planes; ++plane) {  // the keys or the values of a layer
        float* first = data + plane * cache_.stride(1);
        std::memcpy(first + copies[i].to * block, first + copies[i].from * block, block * sizeof(float));
      }
    }
  });
}

}  // namespace manta::gen
