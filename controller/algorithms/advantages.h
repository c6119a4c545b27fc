// From rewards to advantages: baselines per prompt, GRPO, GDPO, Reinforce++ and their relatives, as pure functions over
// spans. Thread-safe; nothing is allocated beyond the result.
//
// Samples are rows: [num_samples]. `groups` says which prompt a row answers (any numbers, equal for the same prompt). The
// per-token arrays of a batch are the rows' tokens one after the other, with `lengths`. Everything is computed in double,
// spreads in two passes: rewards that are all equal have a standard deviation of exactly 0.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace manta::controller {

// What a prompt's samples are compared with.
struct Baselines {
  std::vector<double> baseline;  // [num_samples]
  std::vector<double> std;       // [num_samples]; 0 where it is not defined
};

// The mean and the unbiased standard deviation of each row's group, over the valid rows. With `leave_one_out` a row's own
// reward is not part of either (a group of two has a standard deviation of 0 then). A group with at most one valid row
// has the rows' own rewards as baseline: no advantage. `std_rewards`, where not empty, is what the standard deviation is
// taken of (the reward before shaping). An empty `valid` means that all rows are.
Baselines PromptBaselines(std::span<const int64_t> groups, std::span<const double> rewards,
                          std::span<const double> valid, bool leave_one_out,
                          std::span<const double> std_rewards = {});

// GRPO (arXiv 2402.03300): reward - baseline, divided by (std + 1e-6) where std > 0 if `normalize`.
std::vector<double> GrpoAdvantages(std::span<const double> rewards, const Baselines& baselines, bool normalize);

// GDPO: GRPO advantages of each reward component, weighted and added, then standardised over the batch
// with the unbiased standard deviation. components: [num_components][num_samples]; empty weights mean 1 each. A batch
// whose sums are all equal gets zeros.
std::vector<double> GdpoAdvantages(std::span<const int64_t> groups, std::span<const std::vector<double>> components,
                                   std::span<const double> weights, bool normalize, bool leave_one_out);

// Reward minus the plain mean of the group's valid rows: what Reinforce++ with baseline starts from. An empty `valid`
// means that all rows are.
std::vector<double> GroupCentered(std::span<const int64_t> groups, std::span<const double> rewards,
                                  std::span<const double> valid = {});

// One value a sample, repeated for each of its tokens.
std::vector<double> BroadcastToTokens(std::span<const double> per_sample, std::span<const int32_t> lengths);

// sum(values * mask) / (count + 1e-8), where count is by default the mask's sum: 0 for an empty mask.
double MaskedMean(std::span<const double> values, std::span<const double> mask, std::optional<double> count = {});

// The biased or unbiased variance of the values that the mask selects, in two passes.
double MaskedVariance(std::span<const double> values, std::span<const double> mask, bool unbiased);

// (x - mean) / sqrt(variance), both over the tokens where mask is not 0 and applied to all: the global standardisation of
// Reinforce++ (arXiv 2501.03262). The variance is the biased one, at least 1e-8.
void StandardizeMasked(std::span<double> values, std::span<const double> mask);

// values -= penalty * KL(policy || reference) per token, by estimator "k1", "k2" or "k3" (use_kl_in_reward). Log-ratios
// are clamped to +-20 and estimates to +-10.
void SubtractTokenKl(std::span<double> values, std::span<const double> policy_logprobs,
                     std::span<const double> reference_logprobs, const char* kl_type, double penalty);

// On-policy distillation: (teacher - previous) * mask.
std::vector<double> DistillationAdvantages(std::span<const double> teacher_logprobs,
                                           std::span<const double> prev_logprobs, std::span<const double> mask);

// advantage_clip_low and advantage_clip_high; an empty one does not bind.
void ClipAdvantages(std::span<double> advantages, std::optional<double> low, std::optional<double> high);

}  // namespace manta::controller
