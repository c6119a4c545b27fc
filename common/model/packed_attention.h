// Causal attention over packed sequences (no padding), with gradients: the trainer's backend.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "common/model/attention_backend.h"
#include "common/model/sequence_batches.h"

namespace manta::model {

class PackedAttention : public AttentionBackend {
 public:
  // cu_seqlens: [num_sequences + 1], starts at 0, rises to num_tokens: sequence s holds tokens [cu[s], cu[s+1]).
  explicit PackedAttention(std::vector<int64_t> cu_seqlens) : cu_seqlens_(std::move(cu_seqlens)) {}
  at::Tensor Attend(const AttentionSpec& spec, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) override;

 private:
  std::vector<int64_t> cu_seqlens_;
  std::optional<SequenceBatches> batches_;  // where ATen attends; made at the first layer
};

// Positions that go with cu_seqlens: 0, 1, ... in each sequence. [num_tokens] int64.
at::Tensor PackedPositions(const std::vector<int64_t>& cu_seqlens);

}  // namespace manta::model
