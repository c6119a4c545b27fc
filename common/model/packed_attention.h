// Causal attention over packed sequences (no padding), with gradients: the trainer's backend. Sequences may share their
// beginnings; then each row is computed once, and its gradients add up.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "common/model/attention_backend.h"
#include "common/model/packed_layout.h"
#include "common/model/sequence_batches.h"

namespace manta::model {

class PackedAttention : public AttentionBackend {
 public:
  explicit PackedAttention(PackedLayout layout) : layout_(std::make_shared<const PackedLayout>(std::move(layout))) {}
  // Sequences that share nothing. cu_seqlens: [num_sequences + 1], starts at 0, rises to num_tokens: sequence s holds
  // tokens [cu[s], cu[s+1]).
  explicit PackedAttention(std::vector<int64_t> cu_seqlens)
      : PackedAttention(PackedLayout{std::move(cu_seqlens), {}, {}}) {}
  at::Tensor Attend(const AttentionSpec& spec, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) override;

 private:
  const std::shared_ptr<const PackedLayout> layout_;  // the graph keeps it too
  int64_t checked_rows_ = -1;                         // for which the layout was found right
  std::optional<SequenceBatches> batches_;            // where ATen attends; made at the first layer
};

// Positions that go with a layout: in each sequence they go on from its prefix. [num_rows] int64.
at::Tensor PackedPositions(const PackedLayout& layout);
at::Tensor PackedPositions(const std::vector<int64_t>& cu_seqlens);

}  // namespace manta::model
