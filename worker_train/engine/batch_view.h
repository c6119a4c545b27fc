// A PackedBatch as spans, checked: every array has the size that the lengths ask for, and microbatches add up. Views
// into the message, which must outlive them. Thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "manta/v1/trainer.pb.h"

namespace manta::train {

// The sequences of one microbatch (or of a whole rank); arrays that the message leaves out are empty.
struct BatchView {
  std::span<const int32_t> lengths;            // [num_sequences]
  std::span<const int32_t> tokens;             // [total_tokens]
  std::span<const float> token_mask;           // [total_tokens]
  std::span<const float> sample_mask;          // [num_sequences]
  std::span<const float> advantages;           // [total_tokens]
  std::span<const float> prev_logprobs;        // [total_tokens]
  std::span<const float> generation_logprobs;  // [total_tokens]
  std::span<const float> reference_logprobs;   // [total_tokens]
  std::span<const float> rewards;              // [num_sequences]
  size_t first_token = 0;                      // of the whole batch
};

// INVALID_ARGUMENT names the field and the sizes.
[[nodiscard]] absl::StatusOr<BatchView> ViewBatch(const v1::PackedBatch& batch);

// The batch's microbatches in order. Without microbatch_sizes the whole batch is one.
[[nodiscard]] absl::StatusOr<std::vector<BatchView>> ViewMicrobatches(const v1::PackedBatch& batch);

}  // namespace manta::train
