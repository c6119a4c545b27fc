// Attention over a paged cache in a GPU's memory, by the kernels of libmanta_cuda (common/kernels/cuda/kernels.h). What
// the CPU's does (paged_attention.h), in float32 or bfloat16: a token's attention depends on its own sequence alone.
// Not thread-safe; the library must have been loaded.
#pragma once

#include <cstdint>
#include <vector>

#include "common/cuda/api.h"
#include "common/model/config.h"
#include "worker_gen/runner/step_attention.h"

namespace manta::gen {

class CudaPagedAttention : public StepAttention {
 public:
  // Allocates the cache; throws what ATen throws where there is no memory.
  CudaPagedAttention(const cuda::Api* api, const model::ModelConfig& config, int32_t num_blocks, int32_t block_size,
                     at::ScalarType dtype, at::Device device);

  void SetChunks(absl::Span<const SequenceChunk> chunks) override;

  at::Tensor Attend(const model::AttentionSpec& spec, const at::Tensor& q, const at::Tensor& k,
                    const at::Tensor& v) override;

  void CopyBlocks(absl::Span<const BlockCopy> copies) override;

 private:
  const cuda::Api* const api_;
  const int32_t block_size_;
  at::Tensor cache_;  // [num_layers, 2 (keys, values), num_blocks, block_size, num_kv_heads, head_dim]
  // Of the step: one array, copied to the device at once. [num_tokens] slots (int64), then int32: [num_tokens]
  // sequences, [num_tokens] positions, [num_sequences, max_blocks] block tables.
  std::vector<int32_t> host_;
  at::Tensor device_;
  int64_t num_tokens_ = 0, max_blocks_ = 0;
};

}  // namespace manta::gen
