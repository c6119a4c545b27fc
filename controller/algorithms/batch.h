// From samples and a shard plan to the packed batch that each trainer rank is sent.
//
// Pure functions. Per-token arrays align with the token they score (see proto/manta/v1/trainer.proto).
#pragma once

#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "controller/algorithms/shard_plan.h"
#include "manta/v1/trainer.pb.h"

namespace manta::controller {

// One sequence of a global batch. Empty per-token spans are left out of the message.
struct Sequence {
  std::span<const int32_t> tokens;              // [length]
  std::span<const float> token_mask;            // [length]
  std::span<const float> advantages;            // [length] or empty
  std::span<const float> prev_logprobs;         // [length] or empty
  std::span<const float> generation_logprobs;   // [length] or empty
  std::span<const float> reference_logprobs;    // [length] or empty
  float sample_mask = 1;
  float reward = 0;
  int64_t group = 0;  // samples of one prompt have the same
};

// What the losses are divided by: counts over the whole global batch, all ranks and microbatches.
struct GlobalCounts {
  double valid_tokens = 0;     // sum of token_mask[1:] * sample_mask
  double valid_sequences = 0;  // sum of sample_mask
};
GlobalCounts CountValid(std::span<const Sequence> sequences);

// How many of each sequence's tokens are not shared with the beginning of another of its group that has them already:
// together they are the distinct beginnings of the group.
std::vector<int32_t> NewTokens(std::span<const Sequence> sequences);

// Rank `rank`'s share, in the plan's order.
v1::PackedBatch PackForRank(std::span<const Sequence> sequences, const ShardPlan& plan, int rank);

// The inverse of PackForRank for what a rank answers: `packed` is float32 [total tokens of the rank]; row i of `rows` gets
// the values of sequence i. INTERNAL if the size is not what was sent.
[[nodiscard]] absl::Status UnpackFromRank(std::string_view packed, const ShardPlan& plan, int rank,
                                          std::span<const Sequence> sequences, std::vector<std::vector<float>>& rows);

}  // namespace manta::controller
