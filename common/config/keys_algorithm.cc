// Keys of the trees grpo, sft, eval and loss_fn.
#include "common/config/keys.h"

namespace manta::config {
namespace {

void AddGrpoKeys(Keys& keys) {
  for (Key& key : Keys{
           Int("grpo.num_prompts_per_step", "32").AtLeast(1).AtMost(kMostSamples),
           Int("grpo.num_generations_per_prompt", "16").AtLeast(1).AtMost(kMostGroup),
           Int("grpo.max_num_epochs", "1").AtLeast(1).AtMost(kMostSteps),
           Int("grpo.max_num_steps", "1000000").AtLeast(1).AtMost(kMostSteps),
           Bool("grpo.normalize_rewards", "true"),
           Bool("grpo.use_leave_one_out_baseline", "true"),
           Int("grpo.val_period", "10").AtLeast(0),
           Int("grpo.val_start_at", "-1").AtLeast(-1),
           Bool("grpo.val_at_start", "false"),
           Bool("grpo.val_at_end", "false"),
           Int("grpo.max_val_samples", "256").AtLeast(1).Null(),
           Int("grpo.val_batch_size", "256").AtLeast(1).AtMost(kMostSamples),
           Int("grpo.val_num_generations_per_prompt", "1").AtLeast(1).AtMost(kMostGroup),
           Text("grpo.stop_at_validation_metric", "null").OneOf("accuracy|pass_k").Null(),
           Number("grpo.stop_at_validation_threshold", "null").AtLeast(0).AtMost(1).Null(),
           Bool("grpo.overlong_filtering", "false"),
           Number("grpo.advantage_clip_low", "null").Null(),
           Number("grpo.advantage_clip_high", "null").Null(),
           Number("grpo.seq_logprob_error_threshold", "null").AtLeast(1).Null(),
           Int("grpo.seed", "42").AtLeast(0),
           Text("grpo.adv_estimator.name", "grpo").OneOf("grpo|reinforce_plus_plus"),
           Bool("grpo.adv_estimator.normalize_rewards", "${grpo.normalize_rewards}"),
           Bool("grpo.adv_estimator.use_leave_one_out_baseline", "${grpo.use_leave_one_out_baseline}"),
           Bool("grpo.adv_estimator.minus_baseline", "true"),
           Bool("grpo.use_dynamic_sampling", "false"),
           Int("grpo.dynamic_sampling_max_gen_batches", "10").AtLeast(1).AtMost(kMostSteps),
           Number("grpo.batch_multiplier", "1").AtLeast(0).AtMost(1000),
           Bool("grpo.reward_shaping.enabled", "false"),
           Int("grpo.reward_shaping.overlong_buffer_length", "128").AtLeast(1),
           Number("grpo.reward_shaping.overlong_buffer_penalty", "1").AtLeast(0),
           Int("grpo.reward_shaping.max_response_length", "${policy.max_total_sequence_length}").AtLeast(1),
           Number("grpo.reward_shaping.stop_properly_penalty_coef", "null").AtLeast(0).AtMost(1).Null(),
           Bool("grpo.reward_scaling.enabled", "false"),
           Number("grpo.reward_scaling.source_min", "0.0"),
           Number("grpo.reward_scaling.source_max", "1.0"),
           Number("grpo.reward_scaling.target_min", "0.0"),
           Number("grpo.reward_scaling.target_max", "1.0"),
           Pending("grpo.max_rollout_turns", "1"),
           Pending("grpo.invalid_tool_call_advantage", "null"),
           Pending("grpo.malformed_thinking_advantage", "null"),
           Pending("grpo.async_grpo.enabled", "false"),
           Quiet("grpo.async_grpo.max_trajectory_age_steps"),
           Quiet("grpo.async_grpo.max_generation_failures"),
           Quiet("grpo.async_grpo.in_flight_weight_updates"),
           Quiet("grpo.async_grpo.recompute_kv_cache_after_weight_updates"),
       }) {
    keys.push_back(std::move(key));
  }
}

void AddSftAndEvalKeys(Keys& keys) {
  for (Key& key : Keys{
           Int("sft.max_num_epochs", "1").AtLeast(1).AtMost(kMostSteps),
           Int("sft.max_num_steps", "60").AtLeast(-1).AtMost(kMostSteps).Null(),
           Int("sft.val_period", "10").AtLeast(0),
           Int("sft.val_batches", "8").AtLeast(-1),
           Int("sft.val_global_batch_size", "32").AtLeast(1).AtMost(kMostSamples),
           Int("sft.val_micro_batch_size", "1").AtLeast(1).AtMost(kMostSamples),
           Bool("sft.val_at_start", "true"),
           Bool("sft.val_at_end", "false"),
           Int("sft.seed", "42").AtLeast(0),
           Bool("sft.only_unmask_final", "false"),
           Text("eval.metric", "pass@k").OneOf("pass@k"),
           Int("eval.num_tests_per_prompt", "1").AtLeast(1).AtMost(kMostGroup),
           Int("eval.seed", "42").AtLeast(0),
           Int("eval.k_value", "1").AtLeast(1),
           Text("eval.save_path", "null").Null(),
       }) {
    keys.push_back(std::move(key));
  }
}

void AddLossKeys(Keys& keys) {
  for (Key& key : Keys{
           Number("loss_fn.reference_policy_kl_penalty", "0.01").AtLeast(0),
           Text("loss_fn.reference_policy_kl_type", "k3").OneOf("k1|k2|k3"),
           Number("loss_fn.kl_input_clamp_value", "20.0").AtLeast(0).Null(),
           Number("loss_fn.kl_output_clamp_value", "10.0").AtLeast(0).Null(),
           Number("loss_fn.ratio_clip_min", "0.2").AtLeast(0),
           Number("loss_fn.ratio_clip_max", "0.2").AtLeast(0),
           Number("loss_fn.ratio_clip_c", "null").Null(),
           Bool("loss_fn.use_on_policy_kl_approximation", "false"),
           Bool("loss_fn.use_importance_sampling_correction", "false"),
           Text("loss_fn.truncated_importance_sampling_type", "null").OneOf("tis|icepop|seq-mask-tis").Null(),
           Number("loss_fn.truncated_importance_sampling_ratio", "null").AtLeast(0).Null(),
           Number("loss_fn.truncated_importance_sampling_ratio_min", "null").AtLeast(0).Null(),
           Bool("loss_fn.sequence_level_importance_ratios", "false"),
           Bool("loss_fn.token_level_loss", "true"),
           Bool("loss_fn.force_on_policy_ratio", "false"),
           Bool("loss_fn.use_kl_in_reward", "false"),
           Bool("loss_fn.use_cispo", "false"),
           Bool("loss_fn.disable_ppo_ratio", "false"),
           Number("loss_fn.positive_example_nll_weight", "0.0").AtLeast(0),
       }) {
    keys.push_back(std::move(key));
  }
}

}  // namespace

void AddAlgorithmKeys(Keys& keys) {
  AddGrpoKeys(keys);
  AddSftAndEvalKeys(keys);
  AddLossKeys(keys);
}

}  // namespace manta::config
