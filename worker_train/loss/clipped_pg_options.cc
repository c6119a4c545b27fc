#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "worker_train/loss/clipped_pg.h"

namespace manta::train {
namespace {

absl::Status Wrong(absl::string_view key, absl::string_view expected) {
  return absl::InvalidArgumentError(absl::StrCat("loss_fn.", key, " ", expected));
}

}  // namespace

absl::StatusOr<ClippedPgOptions> ParseClippedPgOptions(const v1::ClippedPgLoss& config) {
  ClippedPgOptions options;
  options.kl_penalty = config.reference_policy_kl_penalty();
  const std::string& kl = config.reference_policy_kl_type();
  if (kl == "k1") {
    options.kl_type = KlType::kK1;
  } else if (kl == "k2") {
    options.kl_type = KlType::kK2;
  } else if (kl == "k3" || kl.empty()) {
    options.kl_type = KlType::kK3;
  } else {
    return Wrong("reference_policy_kl_type", absl::StrCat("is '", kl, "'; known are k1, k2 and k3"));
  }
  if (config.has_kl_input_clamp_value()) options.kl_input_clamp = config.kl_input_clamp_value();
  if (config.has_kl_output_clamp_value()) options.kl_output_clamp = config.kl_output_clamp_value();
  if (options.kl_input_clamp.value_or(0) < 0) return Wrong("kl_input_clamp_value", "must not be negative");
  if (options.kl_output_clamp.value_or(0) < 0) return Wrong("kl_output_clamp_value", "must not be negative");
  options.ratio_clip_min = config.ratio_clip_min();
  options.ratio_clip_max = config.ratio_clip_max();
  if (options.ratio_clip_min < 0 || options.ratio_clip_max < 0) {
    return Wrong("ratio_clip_min and ratio_clip_max", "must not be negative");
  }
  if (config.has_ratio_clip_c()) {
    options.ratio_clip_c = config.ratio_clip_c();
    if (!(*options.ratio_clip_c > 1)) return Wrong("ratio_clip_c", "must be above 1");
  }
  options.on_policy_kl_approximation = config.use_on_policy_kl_approximation();
  options.importance_sampling_correction = config.use_importance_sampling_correction();
  const std::string& truncation = config.truncated_importance_sampling_type();
  if (truncation == "tis") {
    options.truncation = TruncationType::kTis;
  } else if (truncation == "icepop") {
    options.truncation = TruncationType::kIcePop;
  } else if (truncation == "seq-mask-tis") {
    options.truncation = TruncationType::kSequenceMask;
  } else if (!truncation.empty()) {
    return Wrong("truncated_importance_sampling_type",
                 absl::StrCat("is '", truncation, "'; known are tis, icepop and seq-mask-tis"));
  }
  options.sequence_level_ratios = config.sequence_level_importance_ratios();
  if (config.has_truncated_importance_sampling_ratio_min()) {
    options.truncation_min = config.truncated_importance_sampling_ratio_min();
  }
  if (options.truncation != TruncationType::kNone) {
    if (!config.has_truncated_importance_sampling_ratio() || config.truncated_importance_sampling_ratio() <= 0) {
      return Wrong("truncated_importance_sampling_ratio", absl::StrCat("must be positive with ", truncation));
    }
    options.truncation_max = config.truncated_importance_sampling_ratio();
    if (options.truncation_min.value_or(0) < 0 || options.truncation_min.value_or(0) > options.truncation_max) {
      return Wrong("truncated_importance_sampling_ratio_min",
                   "must lie between 0 and truncated_importance_sampling_ratio");
    }
    if (options.truncation == TruncationType::kSequenceMask && options.sequence_level_ratios) {
      return Wrong("truncated_importance_sampling_type", "seq-mask-tis needs sequence_level_importance_ratios=false");
    }
  }
  options.token_level_loss = config.token_level_loss();
  options.force_on_policy_ratio = config.force_on_policy_ratio();
  options.kl_in_reward = config.use_kl_in_reward();
  options.cispo = config.use_cispo();
  options.disable_ppo_ratio = config.disable_ppo_ratio();
  options.positive_nll_weight = config.positive_example_nll_weight();
  if (options.positive_nll_weight < 0) return Wrong("positive_example_nll_weight", "must not be negative");
  return options;
}

}  // namespace manta::train
