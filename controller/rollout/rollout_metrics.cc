#include "controller/rollout/rollout_metrics.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"

namespace manta::controller {

std::map<std::string, double> RolloutMetrics(std::span<const Sample> samples) {
  double count = 0, reward = 0, prompt = 0, generated = 0, truncated = 0;
  double least = std::numeric_limits<double>::infinity(), most = -least, longest = 0;
  std::map<std::string, double> components;
  for (const Sample& sample : samples) {
    if (!sample.status.ok()) continue;
    ++count;
    reward += sample.reward;
    least = std::min(least, sample.reward);
    most = std::max(most, sample.reward);
    prompt += sample.prompt_length;
    generated += sample.response_length();
    longest = std::max(longest, static_cast<double>(sample.response_length()));
    truncated += sample.truncated() ? 1 : 0;
    for (const auto& [name, value] : sample.reward_components) components[name] += value;
  }
  std::map<std::string, double> metrics = {
      {"num_failed_samples", static_cast<double>(samples.size()) - count},
      {"total_generated_tokens", generated},
      {"total_num_tokens", prompt + generated},
  };
  if (count == 0) return metrics;
  metrics["reward"] = metrics["mean_total_reward"] = reward / count;
  metrics["min_total_reward"] = least;
  metrics["max_total_reward"] = most;
  metrics["mean_prompt_length"] = prompt / count;
  metrics["mean_gen_tokens_per_sample"] = generated / count;
  metrics["mean_total_tokens_per_sample"] = (prompt + generated) / count;
  metrics["max_gen_tokens_per_sample"] = longest;
  metrics["truncation_rate"] = truncated / count;
  metrics["natural_termination_rate"] = 1 - truncated / count;
  for (const auto& [name, sum] : components) metrics[absl::StrCat("reward/", name)] = sum / count;
  return metrics;
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
