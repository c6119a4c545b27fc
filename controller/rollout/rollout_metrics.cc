#include "controller/rollout/rollout_metrics.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"

namespace manta::controller {

void RolloutStats::Add(std::span<const Sample> samples) {
  samples_ += static_cast<double>(samples.size());
  for (const Sample& sample : samples) {
    if (!sample.status.ok()) continue;
    ++ok_;
    reward_ += sample.reward;
    least_ = std::min(least_, sample.reward);
    most_ = std::max(most_, sample.reward);
    prompt_ += sample.prompt_length;
    generated_ += sample.response_length();
    longest_ = std::max(longest_, static_cast<double>(sample.response_length()));
    truncated_ += sample.truncated() ? 1 : 0;
    for (const auto& [name, value] : sample.reward_components) components_[name] += value;
  }
}

std::map<std::string, double> RolloutStats::Metrics() const {
  std::map<std::string, double> metrics = {
      {"num_failed_samples", samples_ - ok_},
      {"total_generated_tokens", generated_},
      {"total_num_tokens", prompt_ + generated_},
  };
  if (ok_ == 0) return metrics;
  metrics["reward"] = metrics["mean_total_reward"] = reward_ / ok_;
  metrics["min_total_reward"] = least_;
  metrics["max_total_reward"] = most_;
  metrics["mean_prompt_length"] = prompt_ / ok_;
  metrics["mean_gen_tokens_per_sample"] = generated_ / ok_;
  metrics["mean_total_tokens_per_sample"] = (prompt_ + generated_) / ok_;
  metrics["max_gen_tokens_per_sample"] = longest_;
  metrics["truncation_rate"] = truncated_ / ok_;
  metrics["natural_termination_rate"] = 1 - truncated_ / ok_;
  for (const auto& [name, sum] : components_) metrics[absl::StrCat("reward/", name)] = sum / ok_;
  return metrics;
}

std::map<std::string, double> RolloutMetrics(std::span<const Sample> samples) {
  RolloutStats stats;
  stats.Add(samples);
  return stats.Metrics();
}

std::map<std::string, double> MismatchMetrics(std::span<const Sample> samples,
                                              std::span<const std::vector<float>> prev) {
  double count = 0, multiple = 0, gen_kl = 0, policy_kl = 0, js = 0;
  for (size_t i = 0; i < samples.size(); ++i) {
    if (!samples[i].status.ok()) continue;
    for (size_t t = 1; t < samples[i].tokens.size(); ++t) {
      if (samples[i].token_mask[t] == 0) continue;
      const double p = prev[i][t], g = samples[i].generation_logprobs[t];
      const double mixture = std::max(p, g) + std::log(0.5 * (1 + std::exp(-std::abs(p - g))));
      // k3(a) = e^a - 1 - a with a = log of the ratio of the other distribution to the one sampled from.
      const auto k3 = [](double a) { return std::expm1(a) - a; };
      ++count;
      multiple += std::exp(std::abs(g - p));
      gen_kl += k3(p - g);
      policy_kl += k3(g - p);
      js += 0.5 * (k3(p - mixture) + k3(g - mixture));
    }
  }
  if (count == 0) return {};
  return {{"token_mult_prob_error", multiple / count},
          {"gen_kl_error", gen_kl / count},
          {"policy_kl_error", policy_kl / count},
          {"js_divergence_error", js / count}};
}

}  // namespace manta::controller
