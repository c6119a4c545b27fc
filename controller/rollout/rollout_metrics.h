// What a step's samples looked like, under the field's metric names (without prefix).
//
// Pure functions of the samples. Samples whose status is not OK are counted and left out of every mean.
#pragma once

#include <limits>
#include <map>
#include <span>
#include <string>

#include "controller/rollout/sample.h"

namespace manta::controller {

// The same of samples that come in parts: nothing of them is kept.
class RolloutStats {
 public:
  void Add(std::span<const Sample> samples);
  std::map<std::string, double> Metrics() const;

 private:
  double samples_ = 0, ok_ = 0, reward_ = 0, prompt_ = 0, generated_ = 0, truncated_ = 0, longest_ = 0;
  double least_ = std::numeric_limits<double>::infinity(), most_ = -std::numeric_limits<double>::infinity();
  std::map<std::string, double> components_;
};

// mean/min/max_total_reward, mean_gen_tokens_per_sample, truncation_rate, num_failed_samples, reward/<component>, ...
std::map<std::string, double> RolloutMetrics(std::span<const Sample> samples);

// token_mult_prob_error, gen_kl_error, policy_kl_error, js_divergence_error: how far the trainer's log-probabilities
// `prev` are from the generator's, averaged over the tokens that the policy chose. prev[i] is [length of sample i].
std::map<std::string, double> MismatchMetrics(std::span<const Sample> samples,
                                              std::span<const std::vector<float>> prev);

}  // namespace manta::controller
