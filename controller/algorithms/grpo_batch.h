// What GRPO makes of a step's samples: rewards as they are trained on, masks, advantages. Pure functions.
//
// The order is that of the field's reference: scaling, shaping (the spread is still taken of the unshaped reward),
// baselines, overlong mask, then (with log-probabilities known) the sequence-error mask, advantages, clipping.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/config/run_config.h"
#include "controller/algorithms/advantages.h"
#include "controller/algorithms/batch.h"
#include "controller/rollout/sample.h"

namespace manta::controller {

struct GrpoBatch {
  std::vector<Sample> samples;                        // [num_samples]
  std::vector<double> rewards;                        // [num_samples] scaled and shaped
  std::vector<float> sample_mask;                     // [num_samples] 0: not trained on
  Baselines baselines;
  std::vector<std::vector<float>> prev_logprobs;      // [num_samples][length], empty where not computed
  std::vector<std::vector<float>> policy_logprobs;    // the same before top-k and top-p; empty where prev_logprobs are
  std::vector<std::vector<float>> reference_logprobs;  // the same
  std::vector<std::vector<float>> advantages;         // [num_samples][length], after ComputeAdvantages
  std::map<std::string, double> metrics;              // names without prefix
};

// Rewards as scored, scaled where grpo.reward_scaling says so; 0 for samples that failed.
std::vector<double> ScaledRewards(std::span<const Sample> samples, const config::GrpoConfig& config);

// Rewards, masks and baselines. Samples that failed are masked, and are part of no baseline.
GrpoBatch PrepareGrpoBatch(std::vector<Sample> samples, const config::GrpoConfig& config);

// With prev_logprobs (and reference_logprobs where KL goes into the reward) filled: masks sequences on which generator
// and trainer disagree, then computes advantages: of GRPO, or of Reinforce++ with the group's mean as its baseline.
// UNIMPLEMENTED for an estimator that is not there.
[[nodiscard]] absl::Status ComputeAdvantages(GrpoBatch& batch, const config::GrpoConfig& config,
                                             const config::LossConfig& loss);

// Views of rows [begin, end) for packing; valid while the batch is.
std::vector<Sequence> SequencesOf(const GrpoBatch& batch, size_t begin, size_t end);

}  // namespace manta::controller
