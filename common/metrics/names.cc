#include "common/metrics/names.h"

namespace manta::metrics {
namespace {

constexpr MetricName kNames[] = {
    {"train/loss", "the loss that was minimised"},
    {"train/grad_norm", "norm of the gradient before clipping"},
    {"train/lr", "learning rate of the step"},
    {"train/wd", "weight decay of the step"},
    {"train/reward", "mean reward of the step's samples"},
    {"train/filtered_reward", "mean reward of the samples that dynamic sampling kept"},
    {"train/kl_penalty", "mean KL to the reference policy"},
    {"train/probs_ratio", "mean probability ratio of the policy to the one that sampled"},
    {"train/probs_ratio_min", "its least value"},
    {"train/probs_ratio_max", "its greatest value"},
    {"train/probs_ratio_clamped", "mean ratio after clipping"},
    {"train/probs_ratio_clamped_min", "its least value"},
    {"train/probs_ratio_clamped_max", "its greatest value"},
    {"train/sampling_importance_ratio", "mean weight that corrects trainer against generator; 1 is right"},
    {"train/is_oob_ratio", "part of the weights out of their bounds"},
    {"train/approx_entropy", "entropy of the policy, estimated on its samples"},
    {"train/positive_nll_loss", "negative log-likelihood of correct samples"},
    {"train/num_valid_samples", "samples that were trained on"},
    {"train/global_valid_seqs", "sequences that the loss is normalised by"},
    {"train/global_valid_toks", "tokens that the loss is normalised by"},
    {"train/mean_prompt_length", "tokens a prompt"},
    {"train/total_num_tokens", "tokens of the step, prompts and answers"},
    {"train/advantages/mean", "mean advantage"},
    {"train/advantages/max", "greatest advantage"},
    {"train/advantages/min", "least advantage"},
    {"train/token_mult_prob_error", "mean exp|generator - trainer| of log-probabilities; healthy is 1.0"},
    {"train/gen_kl_error", "KL(generator, trainer), k3 estimate; healthy is below 1e-3"},
    {"train/policy_kl_error", "the same with sides exchanged"},
    {"train/js_divergence_error", "Jensen-Shannon divergence of generator and trainer"},
    {"train/max_seq_mult_prob_error", "token_mult_prob_error of the worst sequence"},
    {"train/mean_seq_mult_prob_error", "mean over sequences"},
    {"train/min_seq_mult_prob_error", "of the best sequence"},
    {"train/max_seq_mult_prob_error_after_mask", "of the worst sequence that was kept"},
    {"train/num_masked_seqs", "sequences dropped for their mismatch"},
    {"train/masked_correct_pct", "part of the dropped ones that were correct"},
    {"train/mean_total_reward", "mean reward over rollouts"},
    {"train/min_total_reward", "least reward"},
    {"train/max_total_reward", "greatest reward"},
    {"train/avg_turns_per_sample", "turns a sample"},
    {"train/max_turns_per_sample", "most turns"},
    {"train/natural_termination_rate", "part of the samples that ended by themselves"},
    {"train/truncation_rate", "part of the samples that hit the length limit"},
    {"train/mean_gen_tokens_per_sample", "generated tokens a sample"},
    {"train/max_gen_tokens_per_sample", "of the longest sample"},
    {"train/mean_total_tokens_per_sample", "tokens a sample with its prompt"},
    {"train/total_generated_tokens", "generated tokens of the step"},
    {"train/num_failed_samples", "samples without a reward: generation or scoring failed"},
    {"train/*", "other quantities of the loss"},
    {"timing/train/total_step_time", "seconds of the step"},
    {"timing/train/data_processing", "drawing and encoding prompts"},
    {"timing/train/generation", "generating"},
    {"timing/train/exposed_generation", "generation that nothing else overlapped"},
    {"timing/train/reward_calculation", "scoring"},
    {"timing/train/policy_and_reference_logprobs", "recomputing log-probabilities"},
    {"timing/train/advantage_calculation", "advantages"},
    {"timing/train/policy_training", "forward, backward, optimiser"},
    {"timing/train/weight_sync", "weights from trainer to generators"},
    {"timing/train/prepare_for_generation/total", "weight_sync and what goes with it"},
    {"timing/train/prepare_for_generation/transfer_and_update_weights", "the transfer itself"},
    {"timing/train/checkpointing", "writing a checkpoint"},
    {"timing/train/valid_tokens_per_sec_per_gpu", "trained tokens a second and device"},
    {"timing/train/*", "other phases"},
    {"performance/samples_per_sec", "samples a second of the whole step"},
    {"performance/tokens_per_sec", "tokens a second of the whole step"},
    {"performance/generation_tokens_per_sec", "generated tokens a second of the generation phase"},
    {"performance/*", "other rates"},
    {"validation/accuracy", "mean reward on held-out problems"},
    {"validation/pass_k", "part of the problems solved by one of k samples"},
    {"validation/avg_length", "tokens a sample"},
    {"validation/mean_gen_tokens_per_sample", "generated tokens a sample"},
    {"validation/val_loss", "loss on the held-out set"},
    {"validation/*", "other quantities of a validation"},
    {"timing/validation/*", "phases of a validation"},
};

}  // namespace

std::span<const MetricName> AllMetricNames() { return kNames; }

bool IsKnownMetric(std::string_view name) {
  for (const MetricName& metric : kNames) {
    if (metric.name == name) return true;
    if (metric.name.back() == '*' && name.substr(0, metric.name.size() - 1) == metric.name.substr(0, metric.name.size() - 1)) {
      return true;
    }
  }
  return false;
}

}  // namespace manta::metrics
