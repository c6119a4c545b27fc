// What goes through the model so that a microbatch's tokens can be scored, each distinct prefix once.
//
// The hidden state of a row depends on the tokens up to it and on nothing else, so sequences that begin with the same
// tokens share those rows, and a token that several of them read there is one score. In GRPO that is the prompt of a
// group, and where its samples agree the response too. A sequence is followed as far as the last token that is read.
// Pure, thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/model/packed_layout.h"

namespace manta::train {

struct ScoringPlan {
  model::PackedLayout layout;   // of the rows
  std::vector<int64_t> tokens;  // [num_rows]: the model's input
  // A score is the log-probability of a token given a row.
  std::vector<int64_t> rows, targets;  // [num_scores]
  // Who reads them: token places[i] of the batch has score scores[i].
  std::vector<int64_t> places, scores;  // [num_read]
};

// `wanted`: [total_tokens]; non-zero where the token's score is read. A first token is never read. An empty span means
// all. Lengths are at least 0 and add up to the number of tokens.
ScoringPlan PlanScoring(std::span<const int32_t> lengths, std::span<const int32_t> tokens,
                        std::span<const float> wanted);

}  // namespace manta::train
