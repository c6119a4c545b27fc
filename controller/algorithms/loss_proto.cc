#include "controller/algorithms/loss_proto.h"

#include <algorithm>

namespace manta::controller {

v1::ClippedPgLoss LossProto(const config::LossConfig& config) {
  v1::ClippedPgLoss loss;
  loss.set_reference_policy_kl_penalty(config.reference_policy_kl_penalty);
  loss.set_reference_policy_kl_type(config.reference_policy_kl_type);
  if (config.kl_input_clamp_value) loss.set_kl_input_clamp_value(*config.kl_input_clamp_value);
  if (config.kl_output_clamp_value) loss.set_kl_output_clamp_value(*config.kl_output_clamp_value);
  loss.set_ratio_clip_min(config.ratio_clip_min);
  loss.set_ratio_clip_max(config.ratio_clip_max);
  if (config.ratio_clip_c) loss.set_ratio_clip_c(*config.ratio_clip_c);
  loss.set_use_on_policy_kl_approximation(config.use_on_policy_kl_approximation);
  loss.set_use_importance_sampling_correction(config.use_importance_sampling_correction);
  loss.set_truncated_importance_sampling_type(config.truncated_importance_sampling_type.value_or(""));
  if (config.truncated_importance_sampling_ratio) {
    loss.set_truncated_importance_sampling_ratio(*config.truncated_importance_sampling_ratio);
  }
  if (config.truncated_importance_sampling_ratio_min) {
    loss.set_truncated_importance_sampling_ratio_min(*config.truncated_importance_sampling_ratio_min);
  }
  loss.set_sequence_level_importance_ratios(config.sequence_level_importance_ratios);
  loss.set_token_level_loss(config.token_level_loss);
  loss.set_force_on_policy_ratio(config.force_on_policy_ratio);
  loss.set_use_kl_in_reward(config.use_kl_in_reward);
  loss.set_use_cispo(config.use_cispo);
  loss.set_disable_ppo_ratio(config.disable_ppo_ratio);
  loss.set_positive_example_nll_weight(config.positive_example_nll_weight);
  return loss;
}

v1::SamplingParams TrainSampling(const config::GenerationConfig& config) {
  v1::SamplingParams sampling;
  sampling.set_temperature(static_cast<float>(config.temperature));
  sampling.set_top_k(static_cast<int32_t>(config.top_k));
  sampling.set_top_p(static_cast<float>(config.top_p));
  sampling.set_min_p(static_cast<float>(config.min_p));
  sampling.set_max_new_tokens(static_cast<int32_t>(config.max_new_tokens));
  sampling.mutable_stop_token_ids()->Add(config.stop_token_ids.begin(), config.stop_token_ids.end());
  sampling.mutable_stop_strings()->Add(config.stop_strings.begin(), config.stop_strings.end());
  sampling.set_ignore_eos(config.ignore_eos);
  return sampling;
}

v1::SamplingParams ValidationSampling(const config::GenerationConfig& config) {
  v1::SamplingParams sampling = TrainSampling(config);
  sampling.set_temperature(static_cast<float>(config.val_temperature));
  sampling.set_top_k(static_cast<int32_t>(config.val_top_k));
  sampling.set_top_p(static_cast<float>(config.val_top_p));
  return sampling;
}

ShardOptions ShardOptionsOf(const config::RunConfig& config, int num_ranks, bool logprobs) {
  const config::PolicyConfig& policy = config.policy;
  ShardOptions options{.num_ranks = num_ranks};
  for (const config::PackingConfig* packing : {&policy.sequence_packing, &policy.dynamic_batching}) {
    if (packing->enabled) {
      options.max_tokens = logprobs ? packing->logprob_mb_tokens : packing->train_mb_tokens;
      options.algorithm = ParsePackingAlgorithm(packing->algorithm).value_or(options.algorithm);  // checked as it was read
      options.seed = config.seed();
      return options;
    }
  }
  options.max_sequences = std::max<int64_t>(1, logprobs ? policy.logprob_batch_size : policy.train_micro_batch_size);
  return options;
}

std::vector<int32_t> LengthsOf(std::span<const Sequence> sequences) {
  std::vector<int32_t> lengths;
  lengths.reserve(sequences.size());
  for (const Sequence& sequence : sequences) lengths.push_back(static_cast<int32_t>(sequence.tokens.size()));
  return lengths;
}

std::vector<int64_t> GroupsOf(std::span<const Sequence> sequences) {
  std::vector<int64_t> groups;
  groups.reserve(sequences.size());
  for (const Sequence& sequence : sequences) groups.push_back(sequence.group);
  return groups;
}

}  // namespace manta::controller
