#include "worker_gen/runner/cuda_paged_attention.h"

#include <algorithm>
#include <cstring>

namespace manta::gen {
namespace {

kernels::cuda::Type KernelType(at::ScalarType type) {
  TORCH_CHECK(type == at::kFloat || type == at::kBFloat16, "the paged cache holds float32 or bfloat16, not ", type);
  return type == at::kFloat ? kernels::cuda::Type::kF32 : kernels::cuda::Type::kBf16;
}

}  // namespace

CudaPagedAttention::CudaPagedAttention(const cuda::Api* api, const model::ModelConfig& config, int32_t num_blocks,
                                       int32_t block_size, at::ScalarType dtype, at::Device device)
    : api_(api),
      block_size_(block_size),
      cache_(at::empty({config.num_layers, 2, num_blocks, block_size, config.num_kv_heads, config.head_dim},
                       at::TensorOptions().dtype(dtype).device(device))) {
  KernelType(dtype);
}

void CudaPagedAttention::SetChunks(absl::Span<const SequenceChunk> chunks) {
  size_t tokens = 0, blocks = 0;
  for (const SequenceChunk& chunk : chunks) {
    tokens += chunk.tokens.size();
    blocks = std::max(blocks, chunk.blocks.size());
  }
  num_tokens_ = static_cast<int64_t>(tokens);
  max_blocks_ = static_cast<int64_t>(blocks);
  host_.assign(tokens * 4 + chunks.size() * blocks, 0);
  int32_t *sequences = host_.data() + 2 * tokens, *positions = sequences + tokens, *tables = positions + tokens;
  size_t t = 0;
  for (size_t c = 0; c < chunks.size(); ++c) {
    const SequenceChunk& chunk = chunks[c];
    std::copy(chunk.blocks.begin(), chunk.blocks.end(), tables + c * blocks);
    for (size_t i = 0; i < chunk.tokens.size(); ++i, ++t) {
      const int32_t position = chunk.num_computed + static_cast<int32_t>(i);
      const int64_t slot =
          static_cast<int64_t>(chunk.blocks[position / block_size_]) * block_size_ + position % block_size_;
      std::memcpy(host_.data() + 2 * t, &slot, sizeof(slot));
      sequences[t] = static_cast<int32_t>(c);
      positions[t] = position;
    }
  }
  device_ = at::from_blob(host_.data(), {static_cast<int64_t>(host_.size())}, at::kInt).to(cache_.device());
}

at::Tensor CudaPagedAttention::Attend(const model::AttentionSpec& spec, const at::Tensor& q, const at::Tensor& k,
                                      const at::Tensor& v) {
  TORCH_CHECK(q.size(0) == num_tokens_, "attention over ", q.size(0), " tokens, ", num_tokens_, " were announced");
  const at::Tensor queries = q.contiguous(), keys = k.contiguous(), values = v.contiguous();
  at::Tensor out = at::empty_like(queries);
  const kernels::cuda::Type type = KernelType(cache_.scalar_type());
  TORCH_CHECK(q.scalar_type() == cache_.scalar_type(), "queries of another type than the cache");
  const at::Tensor key_cache = cache_.select(0, spec.layer).select(0, 0),
                   value_cache = cache_.select(0, spec.layer).select(0, 1);
  const int32_t* step = device_.const_data_ptr<int32_t>();
  const auto check = [&](int error) {
    TORCH_CHECK(error == 0, "attention over the paged cache: ", api_->error_text(error));
  };
  check(api_->write_kv_cache(type, keys.const_data_ptr(), values.const_data_ptr(), key_cache.mutable_data_ptr(),
                             value_cache.mutable_data_ptr(), reinterpret_cast<const int64_t*>(step), num_tokens_,
                             k.size(1), k.size(2), api_->current_stream()));
  kernels::cuda::PagedAttentionArguments a;
  a.q = queries.const_data_ptr();
  a.k_cache = key_cache.const_data_ptr();
  a.v_cache = value_cache.const_data_ptr();
  a.out = out.mutable_data_ptr();
  a.token_sequence = step + 2 * num_tokens_;
  a.token_position = a.token_sequence + num_tokens_;
  a.block_tables = a.token_position + num_tokens_;
  a.tokens = num_tokens_;
  a.max_blocks = max_blocks_;
  a.heads = q.size(1);
  a.kv_heads = k.size(1);
  a.head_dim = q.size(2);
  a.block_size = block_size_;
  a.window = spec.window;
  a.scale = static_cast<float>(spec.scale);
  check(api_->paged_attention(type, a, api_->current_stream()));
  return out;
}

void CudaPagedAttention::CopyBlocks(absl::Span<const BlockCopy> copies) {
  constexpr size_t kMost = 64;  // at once: they pass through a tensor of their size
  for (size_t first = 0; first < copies.size(); first += kMost) {
    const absl::Span<const BlockCopy> some = copies.subspan(first, kMost);
    const int64_t count = static_cast<int64_t>(some.size());
    at::Tensor indices = at::empty({2, count}, at::kLong);
    for (int64_t i = 0; i < count; ++i) {
      indices.data_ptr<int64_t>()[i] = some[i].from;
      indices.data_ptr<int64_t>()[count + i] = some[i].to;
    }
    indices = indices.to(cache_.device());
    cache_.index_copy_(2, indices.select(0, 1), cache_.index_select(2, indices.select(0, 0)));
  }
}

}  // namespace manta::gen
