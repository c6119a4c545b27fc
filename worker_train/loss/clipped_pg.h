// The clipped policy-gradient loss and its family: PPO/GRPO with asymmetric clipping (DAPO, arXiv 2503.14476), dual
// clip (arXiv 1912.09729), sequence-level ratios (GSPO, arXiv 2507.18071), CISPO (arXiv 2506.13585), REINFORCE, KL to a
// reference, and the correction for a generator whose distribution differs from the trainer's (truncated importance
// sampling, IcePop, sequence masks).
//
// Elementwise over packed log-probabilities, so it needs no tensor library: the gradient with respect to each
// log-probability is written out and the log-softmax's backward takes it from there. Pure function, thread-safe. Sums
// are in double, in token order, so that a result is repeatable bit for bit.
#pragma once

#include <optional>

#include "absl/status/statusor.h"
#include "manta/v1/trainer.pb.h"
#include "worker_train/loss/kl_estimate.h"
#include "worker_train/loss/metric_set.h"
#include "worker_train/loss/packed_tokens.h"

namespace manta::train {

enum class TruncationType { kNone, kTis, kIcePop, kSequenceMask };

// The keys of the `loss_fn` tree; empty optionals are nulls.
struct ClippedPgOptions {
  double kl_penalty = 0;
  KlType kl_type = KlType::kK3;
  std::optional<double> kl_input_clamp, kl_output_clamp;
  double ratio_clip_min = 0.2, ratio_clip_max = 0.2;
  std::optional<double> ratio_clip_c;
  bool on_policy_kl_approximation = false;
  bool importance_sampling_correction = false;
  TruncationType truncation = TruncationType::kNone;
  double truncation_max = 0;
  std::optional<double> truncation_min;
  bool sequence_level_ratios = false;
  bool token_level_loss = true;
  bool force_on_policy_ratio = false;
  bool kl_in_reward = false;
  bool cispo = false;
  bool disable_ppo_ratio = false;
  double positive_nll_weight = 0;
};

// INVALID_ARGUMENT names the key and what it may be.
[[nodiscard]] absl::StatusOr<ClippedPgOptions> ParseClippedPgOptions(const v1::ClippedPgLoss& config);

// Whether the loss reads reference log-probabilities.
inline bool NeedsReference(const ClippedPgOptions& options) {
  return options.kl_penalty != 0 && !options.kl_in_reward;
}

// Returns this microbatch's part of the loss: the parts of all microbatches and ranks add up to it.
//
// A token whose current or previous log-probability is -inf lies outside the sampling filter that training applies. The
// generator can have drawn it only through a rounding difference; it is left out of the loss as if it were masked.
template <typename T>
double ClippedPgLoss(const ClippedPgOptions& options, const PackedTokens<T>& batch,
                     const LogprobGradients<T>& gradients, MetricSet& metrics);

}  // namespace manta::train
