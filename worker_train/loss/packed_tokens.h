// What every loss reads and writes: sequences packed one after the other, without padding.
//
// Per-token arrays have [total_tokens] elements and align with the token they score: element t speaks of token t given
// those before it. Element 0 of each sequence is never trained on, whatever the masks say. Views only: the caller owns
// the memory. T is float or double.
#pragma once

#include <cstdint>
#include <span>

namespace manta::train {

// Every masked mean divides by count + kCountEpsilon, so that a batch without valid tokens gives 0 and not NaN.
inline constexpr double kCountEpsilon = 1e-8;

template <typename T>
struct PackedTokens {
  std::span<const int32_t> lengths;        // [num_sequences]; the sum is total_tokens
  std::span<const T> token_mask;           // [total_tokens]
  std::span<const T> sample_mask;          // [num_sequences]
  std::span<const T> current_logprobs;     // [total_tokens]; of this forward pass; -inf: outside the sampling filter
  std::span<const T> unfiltered_logprobs;  // [total_tokens] or empty where no filter applies: then current_logprobs
  std::span<const T> advantages;           // [total_tokens]
  std::span<const T> prev_logprobs;        // [total_tokens]; of the trainer before the update
  std::span<const T> generation_logprobs;  // [total_tokens]
  std::span<const T> reference_logprobs;   // [total_tokens]; may be empty where the loss has no KL term
  std::span<const T> rewards;              // [num_sequences]; may be empty without a positive-example term
  double global_valid_toks = 0;            // over the whole global batch, all ranks and microbatches
  double global_valid_seqs = 0;
  double global_correct_toks = 0;  // valid tokens of samples with reward > 0, likewise
};

// d loss / d log-probability, written (not added) for every token. `unfiltered` may be empty where the input's is; then
// its part is added to `current`.
template <typename T>
struct LogprobGradients {
  std::span<T> current;     // [total_tokens]
  std::span<T> unfiltered;  // [total_tokens] or empty
};

}  // namespace manta::train
