// Unnormalised probabilities of a row of logits, the part of sampling that touches the whole vocabulary.
//
// Plain functions over spans, thread-safe. The result for a row depends on the row alone: sums are taken in a fixed
// order, in float within kWeightBlock elements and in double across them.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace manta::gen {

inline constexpr int32_t kWeightBlock = 64;

struct RowWeights {
  std::vector<float> weights;  // [vocabulary, rounded up to kWeightBlock]: exp((logit - max) * scale), 0 past the end
  std::vector<double> block_sums;  // one a kWeightBlock weights
  double total = 0;
};

// The largest element; NaN where there is a NaN. `row` is not empty.
float RowMax(absl::Span<const float> row);

// Fills `out` (its storage is reused) with exp((row[i] - max) * scale). Relative error of a weight: below 3e-7.
void ComputeWeights(absl::Span<const float> row, float max, float scale, RowWeights& out);

}  // namespace manta::gen
