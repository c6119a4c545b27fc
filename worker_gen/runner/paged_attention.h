// Attention over the paged cache on the CPU: the generator's backend of the model's forward.
//
// Attend first writes the keys and values of all tokens of the step, then lets each token attend to its sequence's
// blocks: tokens of one step may thus share blocks that are filled in it. Not thread-safe.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "common/model/config.h"
#include "worker_gen/runner/step_attention.h"

namespace manta::gen {

class PagedAttention : public StepAttention {
 public:
  // Allocates the cache; throws what ATen throws where there is no memory.
  PagedAttention(const model::ModelConfig& config, int32_t num_blocks, int32_t block_size);

  void SetChunks(absl::Span<const SequenceChunk> chunks) override;

  at::Tensor Attend(const model::AttentionSpec& spec, const at::Tensor& q, const at::Tensor& k,
                    const at::Tensor& v) override;

  void CopyBlocks(absl::Span<const BlockCopy> copies) override;

  // Bytes of a block over all layers.
  static int64_t BlockBytes(const model::ModelConfig& config, int32_t block_size);

 private:
  const int32_t block_size_;
  at::Tensor cache_;  // [num_layers, 2 (keys, values), num_blocks, floats of a block]; see common/kernels/paged_attention.h
  // Of each token of the step:
  std::vector<const int32_t*> blocks_;  // its sequence's block table
  std::vector<int32_t> positions_;
};

}  // namespace manta::gen
