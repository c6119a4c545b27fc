#include "worker_gen/runner/paged_attention.h"

#include <algorithm>
#include <cstring>

#include "common/kernels/paged_attention.h"
#include "common/kernels/parallel.h"

namespace manta::gen {
namespace {

constexpr int64_t kFloatsWorthAThread = 1 << 16;

int64_t BlockFloats(const model::ModelConfig& config, int32_t block_size) {
  kernels::AttentionShape shape;
  shape.num_kv_heads = config.num_kv_heads;
  shape.head_dim = config.head_dim;
  return kernels::PagedBlockFloats(shape, block_size);
}

}  // namespace

PagedAttention::PagedAttention(const model::ModelConfig& config, int32_t num_blocks, int32_t block_size)
    : block_size_(block_size),
      cache_(at::empty({config.num_layers, 2, num_blocks, BlockFloats(config, block_size)}, at::kFloat)) {}

int64_t PagedAttention::BlockBytes(const model::ModelConfig& config, int32_t block_size) {
  return config.num_layers * 2 * BlockFloats(config, block_size) * static_cast<int64_t>(sizeof(float));
}

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
  const int64_t num_tokens = q.size(0), num_heads = q.size(1), head_dim = q.size(2);
  TORCH_CHECK(num_tokens == static_cast<int64_t>(positions_.size()), "attention over ", num_tokens, " tokens, ",
              positions_.size(), " were announced");
  const at::Tensor queries = q.contiguous(), keys = k.contiguous(), values = v.contiguous();
  at::Tensor out = at::empty({num_tokens, num_heads, head_dim}, q.options());
  kernels::AttentionShape shape;
  shape.num_heads = num_heads;
  shape.num_kv_heads = k.size(1);
  shape.head_dim = head_dim;
  shape.scale = static_cast<float>(spec.scale);
  shape.window = spec.window;
  kernels::PagedCache cache;
  cache.block_size = block_size_;
  cache.keys = cache_.data_ptr<float>() + spec.layer * cache_.stride(0);
  cache.values = cache.keys + cache_.stride(1);
  const kernels::PagedTokens tokens{num_tokens, blocks_.data(), positions_.data()};
  kernels::StorePaged(shape, tokens, keys.const_data_ptr<float>(), values.const_data_ptr<float>(), cache);
  kernels::AttendPaged(shape, tokens, queries.const_data_ptr<float>(), cache, out.data_ptr<float>());
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
