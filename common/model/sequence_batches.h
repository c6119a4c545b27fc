// Packed sequences as a few padded batches, for attention kernels that take batches: one call for many short sequences.
//
// Sequences of similar length, prefix and all, go together, padded at their ends to the longest of them. With causal
// attention no real query sees the padding, so no mask is needed. A batch's length differs from its sequences' by at
// most a quarter. A row in the prefixes of several sequences is in a batch several times, but has one place: where the
// sequence is that adds it.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <vector>

#include "common/model/packed_layout.h"

namespace manta::model {

struct SequenceBatch {
  int64_t sequences = 0, length = 0;
  at::Tensor tokens;  // [sequences * length] int64: which row; for padding, the sequence's first
};

struct SequenceBatches {
  std::vector<SequenceBatch> batches;
  at::Tensor places;  // [num_rows] int64: each row's place among the tokens of all batches, one batch after the other
};

// Batches of the layout's sequences, indices on `device`. A batch of more than one sequence has sequences * length^2 of
// at most `max_scores`.
SequenceBatches BatchSequences(const PackedLayout& layout, int64_t max_scores, at::Device device);

}  // namespace manta::model
