#include "controller/algorithms/reward_shaping.h"

#include <algorithm>
#include <cmath>
#include <unordered_map>

namespace manta::controller {

void ScaleRewards(std::span<double> rewards, double source_min, double source_max, double target_min,
                  double target_max) {
  for (double& reward : rewards) {
    const double clamped = std::clamp(reward, source_min, source_max);
    reward = target_min + (clamped - source_min) / (source_max - source_min) * (target_max - target_min);
  }
}

void ShapeOverlong(std::span<double> rewards, std::span<const int64_t> response_lengths, int64_t max_response_length,
                   int64_t buffer_length, double buffer_penalty) {
  const int64_t expected = max_response_length - buffer_length;
  for (size_t i = 0; i < rewards.size(); ++i) {
    const double excess = static_cast<double>(response_lengths[i] - expected);
    rewards[i] += std::min(-excess / static_cast<double>(buffer_length) * buffer_penalty, 0.0);
  }
}

void ShapeTruncated(std::span<double> rewards, std::span<const uint8_t> truncated, double coefficient) {
  for (size_t i = 0; i < rewards.size(); ++i) {
    if (truncated[i]) rewards[i] *= coefficient;
  }
}

int64_t MaskRows(std::span<float> sample_mask, std::span<const uint8_t> flagged) {
  int64_t masked = 0;
  for (size_t i = 0; i < sample_mask.size(); ++i) {
    if (!flagged[i]) continue;
    masked += sample_mask[i] != 0;
    sample_mask[i] = 0;
  }
  return masked;
}

std::vector<size_t> SelectInformativeRows(std::span<const int64_t> groups, std::span<const double> rewards) {
  std::unordered_map<int64_t, std::pair<double, double>> ranges;  // smallest and largest reward
  for (size_t i = 0; i < groups.size(); ++i) {
    auto& range = ranges.try_emplace(groups[i], rewards[i], rewards[i]).first->second;
    range.first = std::min(range.first, rewards[i]);
    range.second = std::max(range.second, rewards[i]);
  }
  std::vector<size_t> kept;
  for (size_t i = 0; i < groups.size(); ++i) {
    const auto& range = ranges.at(groups[i]);
    if (range.first < range.second) kept.push_back(i);
  }
  return kept;
}

SequenceErrorReport MaskSequenceErrors(std::span<const int32_t> lengths, std::span<const float> token_mask,
                                       std::span<const float> prev_logprobs,
                                       std::span<const float> generation_logprobs, std::span<const double> rewards,
                                       std::optional<double> threshold, std::span<float> sample_mask) {
  SequenceErrorReport report;
  int64_t before = 0, after = 0, correct = 0;
  size_t start = 0;
  for (size_t i = 0; i < lengths.size(); ++i) {
    const size_t end = start + static_cast<size_t>(lengths[i]);
    double sum = 0, count = 0;
    for (size_t t = start + 1; t < end; ++t) {
      const double mask = static_cast<double>(token_mask[t]) * sample_mask[i];
      if (mask == 0) continue;
      sum += mask * std::exp(std::abs(static_cast<double>(generation_logprobs[t]) - prev_logprobs[t]));
      count += mask;
    }
    start = end;
    if (count == 0) continue;
    const double error = sum / count;
    report.max = before == 0 ? error : std::max(report.max, error);
    report.min = before == 0 ? error : std::min(report.min, error);
    report.mean += error;
    ++before;
    if (threshold && !(error <= *threshold)) {  // NaN is masked as well
      sample_mask[i] = 0;
      ++report.num_masked;
      correct += rewards[i] == 1.0;
      continue;
    }
    report.max_after_mask = after == 0 ? error : std::max(report.max_after_mask, error);
    report.min_after_mask = after == 0 ? error : std::min(report.min_after_mask, error);
    report.mean_after_mask += error;
    ++after;
  }
  if (before > 0) report.mean /= static_cast<double>(before);
  if (after > 0) report.mean_after_mask /= static_cast<double>(after);
  if (report.num_masked > 0) {
    report.masked_correct_part = static_cast<double>(correct) / static_cast<double>(report.num_masked);
  }
  return report;
}

PenaltyCounts PenalizeMessages(std::span<double> advantages, std::span<const PenalizedMessage> messages,
                               std::optional<double> invalid_tool_call_advantage,
                               std::optional<double> malformed_thinking_advantage) {
  PenaltyCounts counts;
  size_t start = 0;
  for (const PenalizedMessage& message : messages) {
    const size_t end = std::min(advantages.size(), start + static_cast<size_t>(message.num_tokens));
    if (message.assistant) {
      ++counts.assistant_messages;
      counts.invalid_tool_calls += message.invalid_tool_call;
      counts.malformed_thinking += message.malformed_thinking && !message.invalid_tool_call;
      std::optional<double> penalty;
      if (message.malformed_thinking) penalty = malformed_thinking_advantage;
      if (message.invalid_tool_call && invalid_tool_call_advantage) penalty = invalid_tool_call_advantage;
      if (penalty) std::fill(advantages.begin() + start, advantages.begin() + end, *penalty);
    }
    start = end;
  }
  return counts;
}

}  // namespace manta::controller
