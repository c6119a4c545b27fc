// Packed sequences as a few padded batches, for attention kernels that take batches: one call for many short sequences.
//
// Sequences of similar length go together, padded at their ends to the longest of them. With causal attention no real
// query sees the padding, so no mask is needed. A batch's length differs from its sequences' by at most a quarter.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <vector>

namespace manta::model {

struct SequenceBatch {
  int64_t sequences = 0, length = 0;
  at::Tensor tokens;  // [sequences * length] int64: which token; for padding, the sequence's first
};

struct SequenceBatches {
  std::vector<SequenceBatch> batches;
  at::Tensor places;  // [num_tokens] int64: each token's row among the rows of all batches, one batch after the other
};

// Batches of sequences [cu_seqlens[s], cu_seqlens[s + 1]), indices on `device`. A batch of more than one sequence has
// sequences * length^2 of at most `max_scores`.
SequenceBatches BatchSequences(const std::vector<int64_t>& cu_seqlens, int64_t max_scores, at::Device device);

}  // namespace manta::model
