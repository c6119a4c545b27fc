#include "controller/algorithms/grpo_batch.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "controller/algorithms/reward_shaping.h"
#include "controller/rollout/rollout_metrics.h"

namespace manta::controller {
namespace {

// The rows' per-token values one after the other, as the pure functions take them.
template <typename To>
std::vector<To> Concatenate(std::span<const std::vector<float>> rows) {
  std::vector<To> packed;
  for (const auto& row : rows) packed.insert(packed.end(), row.begin(), row.end());
  return packed;
}

std::vector<int32_t> Lengths(const GrpoBatch& batch) {
  std::vector<int32_t> lengths;
  for (const Sample& sample : batch.samples) lengths.push_back(static_cast<int32_t>(sample.tokens.size()));
  return lengths;
}

std::vector<float> TokenMask(const GrpoBatch& batch) {
  std::vector<float> mask;
  for (const Sample& sample : batch.samples) {
    mask.insert(mask.end(), sample.token_mask.begin(), sample.token_mask.end());
  }
  return mask;
}

std::vector<int64_t> Groups(const GrpoBatch& batch) {
  std::vector<int64_t> groups;
  for (const Sample& sample : batch.samples) groups.push_back(sample.group);
  return groups;
}

void MaskDisagreements(GrpoBatch& batch, const config::GrpoConfig& config) {
  if (batch.prev_logprobs.empty()) return;
  std::vector<float> generation;
  for (const Sample& sample : batch.samples) {
    generation.insert(generation.end(), sample.generation_logprobs.begin(), sample.generation_logprobs.end());
  }
  const std::vector<float> prev = Concatenate<float>(batch.prev_logprobs);
  const SequenceErrorReport report =
      MaskSequenceErrors(Lengths(batch), TokenMask(batch), prev, generation, batch.rewards,
                         config.seq_logprob_error_threshold, batch.sample_mask);
  batch.metrics["max_seq_mult_prob_error"] = report.max;
  batch.metrics["mean_seq_mult_prob_error"] = report.mean;
  batch.metrics["min_seq_mult_prob_error"] = report.min;
  if (config.seq_logprob_error_threshold) {
    batch.metrics["max_seq_mult_prob_error_after_mask"] = report.max_after_mask;
    batch.metrics["mean_seq_mult_prob_error_after_mask"] = report.mean_after_mask;
    batch.metrics["min_seq_mult_prob_error_after_mask"] = report.min_after_mask;
    batch.metrics["num_masked_seqs"] = static_cast<double>(report.num_masked);
    batch.metrics["masked_correct_pct"] = report.masked_correct_part;
  }
}

// Reinforce++: rewards less their group's mean, less the divergence of each token where it goes into the reward, and
// all of that standardised over the tokens that count.
std::vector<double> ReinforceAdvantages(const GrpoBatch& batch, const config::GrpoConfig& config,
                                        const config::LossConfig& loss) {
  std::vector<double> valid;
  for (const Sample& sample : batch.samples) valid.push_back(sample.status.ok() ? 1 : 0);
  std::vector<double> rewards = batch.rewards;
  if (config.minus_baseline) rewards = GroupCentered(Groups(batch), rewards, valid);
  std::vector<double> per_token = BroadcastToTokens(rewards, Lengths(batch));
  if (loss.use_kl_in_reward && loss.reference_policy_kl_penalty != 0) {
    const auto& policy = batch.policy_logprobs.empty() ? batch.prev_logprobs : batch.policy_logprobs;
    SubtractTokenKl(per_token, Concatenate<double>(policy), Concatenate<double>(batch.reference_logprobs),
                    loss.reference_policy_kl_type.c_str(), loss.reference_policy_kl_penalty);
  }
  std::vector<double> mask;
  for (size_t i = 0; i < batch.samples.size(); ++i) {
    for (size_t t = 0; t < batch.samples[i].tokens.size(); ++t) {
      mask.push_back(t == 0 ? 0.0 : batch.samples[i].token_mask[t] * batch.sample_mask[i]);
    }
  }
  StandardizeMasked(per_token, mask);
  return per_token;
}

}  // namespace

std::vector<double> ScaledRewards(std::span<const Sample> samples, const config::GrpoConfig& config) {
  std::vector<double> rewards;
  for (const Sample& sample : samples) rewards.push_back(sample.status.ok() ? sample.reward : 0);
  const auto& scaling = config.reward_scaling;
  if (scaling.enabled) {
    ScaleRewards(rewards, scaling.source_min, scaling.source_max, scaling.target_min, scaling.target_max);
  }
  return rewards;
}

GrpoBatch PrepareGrpoBatch(std::vector<Sample> samples, const config::GrpoConfig& config) {
  GrpoBatch batch;
  batch.metrics = RolloutMetrics(samples);
  batch.samples = std::move(samples);
  const size_t n = batch.samples.size();
  std::vector<double> valid(n);
  std::vector<int64_t> response_lengths(n);
  std::vector<uint8_t> truncated(n), failed(n);
  for (size_t i = 0; i < n; ++i) {
    const Sample& sample = batch.samples[i];
    failed[i] = !sample.status.ok();
    valid[i] = failed[i] ? 0 : 1;
    response_lengths[i] = sample.response_length();
    truncated[i] = sample.truncated();
  }
  batch.sample_mask.assign(n, 1.0f);
  MaskRows(batch.sample_mask, failed);

  const std::vector<double> unshaped = ScaledRewards(batch.samples, config);
  batch.rewards = unshaped;
  const auto& shaping = config.reward_shaping;
  if (shaping.enabled) {
    if (shaping.stop_properly_penalty_coef) {
      ShapeTruncated(batch.rewards, truncated, *shaping.stop_properly_penalty_coef);
    } else {
      ShapeOverlong(batch.rewards, response_lengths, shaping.max_response_length, shaping.overlong_buffer_length,
                    shaping.overlong_buffer_penalty);
    }
  }
  batch.baselines =
      PromptBaselines(Groups(batch), batch.rewards, valid, config.use_leave_one_out_baseline, unshaped);
  if (config.overlong_filtering) {
    batch.metrics["num_overlong_masked"] = static_cast<double>(MaskRows(batch.sample_mask, truncated));
  }
  return batch;
}

absl::Status ComputeAdvantages(GrpoBatch& batch, const config::GrpoConfig& config, const config::LossConfig& loss) {
  MaskDisagreements(batch, config);
  const std::vector<int32_t> lengths = Lengths(batch);
  std::vector<double> per_token;
  if (config.adv_estimator == "grpo") {
    per_token = BroadcastToTokens(GrpoAdvantages(batch.rewards, batch.baselines, config.normalize_rewards), lengths);
  } else if (config.adv_estimator == "reinforce_plus_plus") {
    per_token = ReinforceAdvantages(batch, config, loss);
  } else {
    return absl::UnimplementedError(
        absl::StrCat("grpo.adv_estimator.name: \"", config.adv_estimator, "\" is not implemented"));
  }
  ClipAdvantages(per_token, config.advantage_clip_low, config.advantage_clip_high);

  double sum = 0, count = 0, least = std::numeric_limits<double>::infinity(), most = -least;
  size_t offset = 0;
  batch.advantages.clear();
  for (size_t i = 0; i < batch.samples.size(); ++i) {
    const auto begin = per_token.begin() + static_cast<std::ptrdiff_t>(offset);
    batch.advantages.emplace_back(begin, begin + lengths[i]);
    for (int32_t t = 1; t < lengths[i]; ++t) {
      if (batch.samples[i].token_mask[t] == 0 || batch.sample_mask[i] == 0) continue;
      const double advantage = per_token[offset + t];
      sum += advantage;
      ++count;
      least = std::min(least, advantage);
      most = std::max(most, advantage);
    }
    offset += lengths[i];
  }
  if (count > 0) {
    batch.metrics["advantages/mean"] = sum / count;
    batch.metrics["advantages/min"] = least;
    batch.metrics["advantages/max"] = most;
  }
  return absl::OkStatus();
}

std::vector<Sequence> SequencesOf(const GrpoBatch& batch, size_t begin, size_t end) {
  const auto row = [](const std::vector<std::vector<float>>& rows, size_t i) {
    return rows.empty() ? std::span<const float>() : std::span<const float>(rows[i]);
  };
  std::vector<Sequence> sequences;
  for (size_t i = begin; i < end; ++i) {
    const Sample& sample = batch.samples[i];
    sequences.push_back({.tokens = sample.tokens,
                         .token_mask = sample.token_mask,
                         .advantages = row(batch.advantages, i),
                         .prev_logprobs = row(batch.prev_logprobs, i),
                         .generation_logprobs = sample.generation_logprobs,
                         .reference_logprobs = row(batch.reference_logprobs, i),
                         .sample_mask = batch.sample_mask[i],
                         .reward = static_cast<float>(batch.rewards[i]),
                         .group = sample.group});
  }
  return sequences;
}

}  // namespace manta::controller
