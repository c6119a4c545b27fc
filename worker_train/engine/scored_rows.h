// The model's pass over one microbatch: log-probabilities of those tokens that a loss or a caller reads, and the way
// back from their gradients into the parameters'.
//
// Only what is needed is computed: what sequences have in common at their beginnings once, a sequence as far as the
// last token that is read, and the output matrix for those tokens alone (scoring_plan.h). On the CPU in float32 every
// row's value is the same whatever else is in the microbatch. Not thread-safe; ATen's exceptions do not leave these
// functions.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "common/model/parameters.h"
#include "manta/v1/trainer.pb.h"

namespace manta::train {

struct ScoreOptions {
  double temperature = 1;
  int64_t top_k = 0;        // 0: off
  double top_p = 1;         // 1: off
  bool unfiltered = false;  // also without the filter, where one is given
  bool recompute = false;   // activation checkpointing: layers run again in Backward
  int64_t chunk_rows = 0;   // rows of logits held at once; 0: a sensible default
  bool filters() const { return top_k > 0 || top_p < 1; }
};

class ScoredRows {
 public:
  // `wanted`: [total_tokens]; non-zero where the token's log-probability is read. A first token is never read. An empty
  // span means all. Gradients can flow unless c10::GradMode is off.
  [[nodiscard]] static absl::StatusOr<ScoredRows> Compute(const model::Parameters& parameters,
                                                          std::span<const int32_t> lengths,
                                                          std::span<const int32_t> tokens,
                                                          std::span<const float> wanted, const ScoreOptions& options);

  // Writes the log-probabilities to their tokens' places in `out` [total_tokens]; others are left as they are.
  void CopyTo(std::span<float> out) const { Scatter(logprobs_, out); }
  // Likewise without the filter; only with options.unfiltered and a filter.
  void CopyUnfilteredTo(std::span<float> out) const { Scatter(unfiltered_, out); }

  // Adds to the parameters' gradients, given d loss / d log-probability by token; `unfiltered` may be empty. Once.
  [[nodiscard]] absl::Status Backward(std::span<const float> gradient, std::span<const float> unfiltered);

 private:
  void Scatter(const at::Tensor& values, std::span<float> out) const;
  at::Tensor Gather(std::span<const float> values) const;  // summed by score

  std::vector<int64_t> places_, scores_;  // of each token that is read: where among all tokens, and its score
  at::Tensor output_;                     // [scores, hidden] with the model's graph
  at::Tensor leaf_;                       // the same values; the log-probabilities' graph begins here
  at::Tensor logprobs_, unfiltered_;      // [scores] float32
};

}  // namespace manta::train
