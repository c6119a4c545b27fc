// The trees grpo, sft, eval and loss_fn into their structs.
#include "absl/strings/str_cat.h"
#include "common/config/reader.h"

namespace manta::config {
namespace {

void ReadGrpo(Reader& r, GrpoConfig& g) {
  r.Read("grpo.num_prompts_per_step", g.num_prompts_per_step);
  r.Read("grpo.num_generations_per_prompt", g.num_generations_per_prompt);
  r.Read("grpo.max_num_epochs", g.max_num_epochs);
  r.Read("grpo.max_num_steps", g.max_num_steps);
  r.Read("grpo.adv_estimator.name", g.adv_estimator);
  r.Read("grpo.normalize_rewards", g.normalize_rewards);
  r.Read("grpo.use_leave_one_out_baseline", g.use_leave_one_out_baseline);
  r.Read("grpo.adv_estimator.normalize_rewards", g.normalize_rewards);
  r.Read("grpo.adv_estimator.use_leave_one_out_baseline", g.use_leave_one_out_baseline);
  r.Read("grpo.adv_estimator.minus_baseline", g.minus_baseline);
  r.Read("grpo.use_dynamic_sampling", g.use_dynamic_sampling);
  r.Read("grpo.dynamic_sampling_max_gen_batches", g.dynamic_sampling_max_gen_batches);
  r.Read("grpo.batch_multiplier", g.batch_multiplier);
  r.Require(g.use_dynamic_sampling || g.batch_multiplier == 1, "grpo.batch_multiplier",
            "needs use_dynamic_sampling: true where it is not 1");
  r.Require(g.prompts_per_batch() >= 1, "grpo.batch_multiplier", "leaves no prompt in a generation batch");
  r.Require(!g.use_dynamic_sampling || g.num_generations_per_prompt >= 2, "grpo.use_dynamic_sampling",
            "needs num_generations_per_prompt of at least 2: the answers to a prompt are compared");
  r.Read("grpo.val_period", g.val_period);
  r.Read("grpo.val_start_at", g.val_start_at);
  r.Read("grpo.val_at_start", g.val_at_start);
  r.Read("grpo.val_at_end", g.val_at_end);
  std::optional<int64_t> max_val_samples = g.max_val_samples;
  r.Read("grpo.max_val_samples", max_val_samples);
  g.max_val_samples = max_val_samples.value_or(0);
  r.Read("grpo.val_batch_size", g.val_batch_size);
  r.Read("grpo.val_num_generations_per_prompt", g.val_num_generations_per_prompt);
  r.Read("grpo.stop_at_validation_metric", g.stop_at_validation_metric);
  r.Read("grpo.stop_at_validation_threshold", g.stop_at_validation_threshold);
  r.Require(g.stop_at_validation_metric.has_value() == g.stop_at_validation_threshold.has_value(),
            "grpo.stop_at_validation_metric", "needs stop_at_validation_threshold, and the other way round");
  r.Read("grpo.overlong_filtering", g.overlong_filtering);
  r.Read("grpo.advantage_clip_low", g.advantage_clip_low);
  r.Read("grpo.advantage_clip_high", g.advantage_clip_high);
  r.Read("grpo.seq_logprob_error_threshold", g.seq_logprob_error_threshold);
  r.Read("grpo.seed", g.seed);
  if (g.advantage_clip_low && g.advantage_clip_high) {
    r.Require(*g.advantage_clip_low <= *g.advantage_clip_high, "grpo.advantage_clip_low",
              "must not be above grpo.advantage_clip_high");
  }
  RewardScalingConfig& scaling = g.reward_scaling;
  r.Read("grpo.reward_scaling.enabled", scaling.enabled);
  if (scaling.enabled) {
    r.Read("grpo.reward_scaling.source_min", scaling.source_min);
    r.Read("grpo.reward_scaling.source_max", scaling.source_max);
    r.Read("grpo.reward_scaling.target_min", scaling.target_min);
    r.Read("grpo.reward_scaling.target_max", scaling.target_max);
    r.Require(scaling.source_min < scaling.source_max, "grpo.reward_scaling.source_min", "must be below source_max");
    r.Require(scaling.target_min < scaling.target_max, "grpo.reward_scaling.target_min", "must be below target_max");
  }
  RewardShapingConfig& shaping = g.reward_shaping;
  r.Read("grpo.reward_shaping.enabled", shaping.enabled);
  if (shaping.enabled) {
    r.Read("grpo.reward_shaping.overlong_buffer_length", shaping.overlong_buffer_length);
    r.Read("grpo.reward_shaping.overlong_buffer_penalty", shaping.overlong_buffer_penalty);
    r.Read("grpo.reward_shaping.max_response_length", shaping.max_response_length);
    r.Read("grpo.reward_shaping.stop_properly_penalty_coef", shaping.stop_properly_penalty_coef);
    r.Require(shaping.stop_properly_penalty_coef || shaping.overlong_buffer_length <= shaping.max_response_length,
              "grpo.reward_shaping.overlong_buffer_length", "must not be above max_response_length");
  }
}

void ReadSft(Reader& r, SftConfig& s) {
  r.Read("sft.max_num_epochs", s.max_num_epochs);
  r.Read("sft.max_num_steps", s.max_num_steps);
  if (const Node* steps = FindPath(r.tree().root(), "sft.max_num_steps"); steps != nullptr && steps->is_null()) {
    s.max_num_steps = -1;
  }
  r.Require(s.max_num_steps != 0, "sft.max_num_steps", "must not be 0; -1 means no bound but the epochs");
  r.Read("sft.val_period", s.val_period);
  r.Read("sft.val_batches", s.val_batches);
  r.Read("sft.val_global_batch_size", s.val_global_batch_size);
  r.Read("sft.val_micro_batch_size", s.val_micro_batch_size);
  r.Read("sft.val_at_start", s.val_at_start);
  r.Read("sft.val_at_end", s.val_at_end);
  r.Read("sft.seed", s.seed);
  r.Read("sft.only_unmask_final", s.only_unmask_final);
}

void ReadEval(Reader& r, EvalConfig& e) {
  r.Read("eval.metric", e.metric);
  r.Read("eval.num_tests_per_prompt", e.num_tests_per_prompt);
  r.Read("eval.k_value", e.k_value);
  r.Read("eval.seed", e.seed);
  r.Read("eval.save_path", e.save_path);
  r.Require(e.k_value <= e.num_tests_per_prompt, "eval.k_value", "must not be above eval.num_tests_per_prompt");
}

void ReadLoss(Reader& r, LossConfig& l) {
  r.Read("loss_fn.reference_policy_kl_penalty", l.reference_policy_kl_penalty);
  r.Read("loss_fn.reference_policy_kl_type", l.reference_policy_kl_type);
  r.Read("loss_fn.kl_input_clamp_value", l.kl_input_clamp_value);
  r.Read("loss_fn.kl_output_clamp_value", l.kl_output_clamp_value);
  r.Read("loss_fn.ratio_clip_min", l.ratio_clip_min);
  r.Read("loss_fn.ratio_clip_max", l.ratio_clip_max);
  r.Read("loss_fn.ratio_clip_c", l.ratio_clip_c);
  r.Read("loss_fn.use_on_policy_kl_approximation", l.use_on_policy_kl_approximation);
  r.Read("loss_fn.use_importance_sampling_correction", l.use_importance_sampling_correction);
  r.Read("loss_fn.truncated_importance_sampling_type", l.truncated_importance_sampling_type);
  r.Read("loss_fn.truncated_importance_sampling_ratio", l.truncated_importance_sampling_ratio);
  r.Read("loss_fn.truncated_importance_sampling_ratio_min", l.truncated_importance_sampling_ratio_min);
  r.Read("loss_fn.sequence_level_importance_ratios", l.sequence_level_importance_ratios);
  r.Read("loss_fn.token_level_loss", l.token_level_loss);
  r.Read("loss_fn.force_on_policy_ratio", l.force_on_policy_ratio);
  r.Read("loss_fn.use_kl_in_reward", l.use_kl_in_reward);
  r.Read("loss_fn.use_cispo", l.use_cispo);
  r.Read("loss_fn.disable_ppo_ratio", l.disable_ppo_ratio);
  r.Read("loss_fn.positive_example_nll_weight", l.positive_example_nll_weight);

  r.Require(!l.ratio_clip_c || *l.ratio_clip_c > 1, "loss_fn.ratio_clip_c", "must be above 1, or null");
  r.Require(!(l.force_on_policy_ratio && l.disable_ppo_ratio), "loss_fn.disable_ppo_ratio",
            "cannot be combined with force_on_policy_ratio");
  r.Require(!(l.use_cispo && l.disable_ppo_ratio), "loss_fn.use_cispo", "cannot be combined with disable_ppo_ratio");
  r.Require(!(l.sequence_level_importance_ratios && l.token_level_loss), "loss_fn.sequence_level_importance_ratios",
            "needs token_level_loss: false");
  if (l.truncated_importance_sampling_type) {
    const std::string& type = *l.truncated_importance_sampling_type;
    r.Require(l.use_importance_sampling_correction, "loss_fn.truncated_importance_sampling_type",
              "needs use_importance_sampling_correction: true");
    r.Require(l.truncated_importance_sampling_ratio.has_value(), "loss_fn.truncated_importance_sampling_ratio",
              absl::StrCat("is missing, ", type, " needs it"));
    r.Require(l.truncated_importance_sampling_ratio.value_or(1) > 0, "loss_fn.truncated_importance_sampling_ratio",
              "must be above 0");
    r.Require(type != "seq-mask-tis" || !l.sequence_level_importance_ratios,
              "loss_fn.truncated_importance_sampling_type",
              "seq-mask-tis cannot be combined with sequence_level_importance_ratios: true");
    r.Require(type == "tis" || l.truncated_importance_sampling_ratio_min.has_value(),
              "loss_fn.truncated_importance_sampling_ratio_min", absl::StrCat("is missing, ", type, " needs it"));
  }
  if (l.truncated_importance_sampling_ratio && l.truncated_importance_sampling_ratio_min) {
    r.Require(*l.truncated_importance_sampling_ratio_min <= *l.truncated_importance_sampling_ratio,
              "loss_fn.truncated_importance_sampling_ratio_min",
              "must not be above truncated_importance_sampling_ratio");
  }
}

}  // namespace

void ReadAlgorithm(Reader& r, RunConfig& run) {
  switch (run.algorithm) {
    case Algorithm::kGrpo:
      ReadGrpo(r, run.grpo);
      ReadLoss(r, run.loss);
      break;
    case Algorithm::kSft:
      ReadSft(r, run.sft);
      break;
    case Algorithm::kEval:
      ReadEval(r, run.eval);
      break;
    case Algorithm::kActors:
      break;
  }
}

}  // namespace manta::config
