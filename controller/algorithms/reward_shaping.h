// What happens to rewards and sample masks between scoring and the loss, as pure functions: scaling, shaping of over-long
// answers, dynamic sampling, and the masks. Thread-safe.
//
// The order of a step: scaling, shaping (the standard deviation is still taken of the reward before it), baselines,
// dynamic sampling, overlong mask, sequence-error mask, advantages, message penalties, clipping.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace manta::controller {

// Clamps to [source_min, source_max] and maps that range linearly to [target_min, target_max].
void ScaleRewards(std::span<double> rewards, double source_min, double source_max, double target_min,
                  double target_max);

// DAPO's penalty (arXiv 2503.14476): an answer that reaches into the last `buffer_length` tokens before
// `max_response_length` loses up to `buffer_penalty`, in proportion; beyond it the penalty goes on growing. Lengths are
// of the first answer of a conversation.
void ShapeOverlong(std::span<double> rewards, std::span<const int64_t> response_lengths, int64_t max_response_length,
                   int64_t buffer_length, double buffer_penalty);

// The other shaping: the reward of a truncated answer is multiplied by `coefficient`.
void ShapeTruncated(std::span<double> rewards, std::span<const uint8_t> truncated, double coefficient);

// Sample masks: 0 where a row is truncated (overlong filtering) or flagged. Returns how many rows that masked anew.
int64_t MaskRows(std::span<float> sample_mask, std::span<const uint8_t> flagged);

// Dynamic sampling (DAPO): rows of the prompts whose rewards differ, in order. A prompt is kept or dropped whole.
std::vector<size_t> SelectInformativeRows(std::span<const int64_t> groups, std::span<const double> rewards);

struct SequenceErrorReport {
  double max = 0, mean = 0, min = 0;                                  // over sequences with tokens that count
  double max_after_mask = 0, mean_after_mask = 0, min_after_mask = 0;  // over those that are left
  int64_t num_masked = 0;
  double masked_correct_part = 0;  // of the masked sequences, the part with reward 1
};

// Masks sequences whose mean over valid tokens of exp|generation - previous| log-probability is above `threshold`: the
// generator and the trainer disagree on them. Without a threshold only the report is made. Per-token spans are packed with
// `lengths`; element 0 of each sequence does not count.
SequenceErrorReport MaskSequenceErrors(std::span<const int32_t> lengths, std::span<const float> token_mask,
                                       std::span<const float> prev_logprobs,
                                       std::span<const float> generation_logprobs, std::span<const double> rewards,
                                       std::optional<double> threshold, std::span<float> sample_mask);

// One message of a conversation, as the penalties see it.
struct PenalizedMessage {
  int64_t num_tokens = 0;
  bool assistant = false;
  bool invalid_tool_call = false;
  bool malformed_thinking = false;
};
// A message with both faults counts as an invalid tool call.
struct PenaltyCounts {
  int64_t invalid_tool_calls = 0, malformed_thinking = 0, assistant_messages = 0;
};

// Overwrites the advantages of the tokens of faulty assistant messages of one sample; an invalid tool call comes before
// malformed thinking. An empty penalty leaves its kind as it is.
PenaltyCounts PenalizeMessages(std::span<double> advantages, std::span<const PenalizedMessage> messages,
                               std::optional<double> invalid_tool_call_advantage,
                               std::optional<double> malformed_thinking_advantage);

}  // namespace manta::controller
