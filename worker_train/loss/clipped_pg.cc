#include "worker_train/loss/clipped_pg.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace manta::train {
namespace {

// What a sequence's tokens share.
struct SequenceTerms {
  double mask_sum = 0;            // of the token mask
  double log_ratio_mean = 0;      // of current - previous
  double importance_log_sum = 0;  // of previous - generation
  double importance_log_mean = 0;
};

// A weight that is not a finite number would make the whole batch useless: its token is left out.
template <typename T>
T FiniteOrZero(T weight) {
  return std::isfinite(weight) ? weight : T{0};
}

// An estimate of KL(p || q) from log q - log p.
template <typename T>
double Estimate(KlType type, T log_ratio) {
  return EstimateKl<T>(type, T{0}, log_ratio, T{1}, std::nullopt, std::nullopt).value;
}

// log((e^a + e^b) / 2), without underflow.
template <typename T>
T LogMean(T a, T b) {
  const T high = std::max(a, b), low = std::min(a, b);
  if (std::isinf(high)) return high;
  return high + std::log1p(std::exp(low - high)) - static_cast<T>(0.69314718055994530942);
}

// Sums of what is reported, not yet divided.
struct Totals {
  double actor = 0, kl = 0, positive_nll = 0;
  double ratio = 0, ratio_clamped = 0;
  double ratio_min = std::numeric_limits<double>::infinity(), ratio_max = -ratio_min;
  double clamped_min = ratio_min, clamped_max = ratio_max;
  double mult_prob_error = 0, gen_kl = 0, policy_kl = 0, js = 0, entropy = 0;
  double importance = 0, out_of_bounds = 0, samples = 0;
};

template <typename T>
class Accumulator {
 public:
  Accumulator(const ClippedPgOptions& options, const PackedTokens<T>& batch, const LogprobGradients<T>& gradients)
      : options_(options),
        batch_(batch),
        current_gradient_(gradients.current),
        // Without a filter the two log-probabilities are one, and so are their gradients.
        unfiltered_(batch.unfiltered_logprobs.empty() ? batch.current_logprobs : batch.unfiltered_logprobs),
        unfiltered_gradient_(gradients.unfiltered.empty() ? gradients.current : gradients.unfiltered),
        token_scale_(1.0 / (batch.global_valid_toks + kCountEpsilon)),
        sequence_scale_(1.0 / (batch.global_valid_seqs + kCountEpsilon)),
        correct_scale_(1.0 / (batch.global_correct_toks + kCountEpsilon)),
        clamp_low_(static_cast<T>(1.0 - options.ratio_clip_min)),
        clamp_high_(static_cast<T>(1.0 + options.ratio_clip_max)),
        truncation_low_(static_cast<T>(options.truncation_min.value_or(0))),
        truncation_high_(static_cast<T>(options.truncation_max)) {}

  void AddSequence(size_t index, size_t start, size_t end) {
    std::fill(current_gradient_.begin() + start, current_gradient_.begin() + end, T{0});
    std::fill(unfiltered_gradient_.begin() + start, unfiltered_gradient_.begin() + end, T{0});
    const double sample_mask = batch_.sample_mask[index];
    totals.samples += sample_mask;
    if (sample_mask == 0) return;
    const SequenceTerms sequence = Describe(start, end);
    const bool sequence_weight = options_.sequence_level_ratios;
    T weight = 1;  // of the whole sequence
    if (sequence_weight) {
      weight = std::exp(static_cast<T>(sequence.importance_log_sum * sample_mask));
      const bool out = Truncate(weight);
      totals.importance += sample_mask * weight;
      totals.out_of_bounds += out ? sample_mask * sequence.mask_sum : 0;  // weighted by tokens
    }
    bool gate = true;
    if (options_.truncation == TruncationType::kSequenceMask) {
      const T mean_ratio = std::exp(static_cast<T>(sequence.importance_log_mean));
      gate = mean_ratio >= truncation_low_ && mean_ratio <= truncation_high_;
      totals.out_of_bounds += gate ? 0 : sample_mask;
    }
    // One token's coefficient is its mask times this.
    const double scale = options_.token_level_loss
                             ? sample_mask * token_scale_
                             : sample_mask * sequence_scale_ / (sequence.mask_sum + kCountEpsilon);
    const bool positive = options_.positive_nll_weight != 0 && batch_.rewards[index] > 0;
    const bool sequence_ratio =
        options_.sequence_level_ratios && !options_.force_on_policy_ratio && !options_.disable_ppo_ratio;
    const T shared_ratio = sequence_ratio ? std::exp(static_cast<T>(sequence.log_ratio_mean)) : T{0};
    double shared_gradient = 0;  // d loss / d log of the sequence's ratio

    for (size_t t = start + 1; t < end; ++t) {
      if (!Counts(t)) continue;
      const double token_mask = batch_.token_mask[t], mask = token_mask * sample_mask;
      const T current = batch_.current_logprobs[t], generation = batch_.generation_logprobs[t];
      const T previous = Previous(t);
      AddMismatch(mask, current, previous, generation);

      if (!sequence_weight) {
        weight = std::exp(previous - generation);
        if (options_.truncation == TruncationType::kSequenceMask) {
          weight = gate ? FiniteOrZero(weight) : T{0};
        } else if (Truncate(weight)) {
          totals.out_of_bounds += mask;
        }
        totals.importance += mask * weight;
      }

      // The ratio, and d ratio / d log-ratio (for REINFORCE the ratio is the log-probability itself).
      T ratio, ratio_slope;
      if (options_.force_on_policy_ratio) {
        ratio = ratio_slope = 1;
      } else if (options_.disable_ppo_ratio) {
        ratio = current;
        ratio_slope = 1;
      } else {
        ratio = ratio_slope = sequence_ratio ? shared_ratio : std::exp(current - previous);
      }
      T clamped = ratio, clamped_slope = ratio_slope;
      if (!options_.force_on_policy_ratio && !options_.disable_ppo_ratio) {
        clamped = std::clamp(ratio, clamp_low_, clamp_high_);
        if (clamped != ratio) clamped_slope = 0;
      }
      totals.ratio += mask * ratio;
      totals.ratio_clamped += mask * clamped;
      totals.ratio_min = std::min<double>(totals.ratio_min, ratio);
      totals.ratio_max = std::max<double>(totals.ratio_max, ratio);
      totals.clamped_min = std::min<double>(totals.clamped_min, clamped);
      totals.clamped_max = std::max<double>(totals.clamped_max, clamped);

      const T advantage = batch_.advantages[t];
      const T applied = options_.importance_sampling_correction ? weight : T{1};
      T loss, slope;  // of this token; the slope is with respect to the log-ratio, or to `current`
      bool through_ratio = true;
      if (options_.cispo) {
        loss = -advantage * clamped * current;
        slope = -advantage * clamped;
        through_ratio = false;
      } else {
        const T plain = -advantage * ratio, pessimistic = -advantage * clamped;
        loss = std::max(plain, pessimistic);
        slope = -advantage * (plain >= pessimistic ? ratio_slope : clamped_slope);
      }
      if (options_.ratio_clip_c && advantage < 0) {
        const T bound = -advantage * static_cast<T>(*options_.ratio_clip_c);
        if (bound < loss) {
          loss = bound;
          slope = 0;
        }
      }
      const double coefficient = token_mask * scale;
      totals.actor += coefficient * (static_cast<double>(applied) * loss);
      const double gradient = coefficient * applied * slope;
      if (through_ratio && sequence_ratio) {
        shared_gradient += gradient;
      } else {
        current_gradient_[t] += static_cast<T>(gradient);
      }

      if (NeedsReference(options_)) AddKl(t, coefficient, generation);
      if (positive) {
        totals.positive_nll -= mask * current;
        current_gradient_[t] -= static_cast<T>(options_.positive_nll_weight * mask * correct_scale_);
      }
    }
    if (sequence_ratio && shared_gradient != 0) {
      const double each = shared_gradient / (sequence.mask_sum + kCountEpsilon);
      for (size_t t = start + 1; t < end; ++t) {
        if (Counts(t)) current_gradient_[t] += static_cast<T>(each * batch_.token_mask[t]);
      }
    }
  }

  double Report(MetricSet& metrics) const {
    const double kl = totals.kl, nll = totals.positive_nll * correct_scale_;
    const double loss = totals.actor + options_.kl_penalty * kl + options_.positive_nll_weight * nll;
    metrics.Sum("loss", loss);
    metrics.Sum("probs_ratio", totals.ratio * token_scale_);
    metrics.Sum("probs_ratio_clamped", totals.ratio_clamped * token_scale_);
    metrics.Min("probs_ratio_min", totals.ratio_min);
    metrics.Max("probs_ratio_max", totals.ratio_max);
    metrics.Min("probs_ratio_clamped_min", totals.clamped_min);
    metrics.Max("probs_ratio_clamped_max", totals.clamped_max);
    metrics.Sum("kl_penalty", kl);
    metrics.Sum("token_mult_prob_error", totals.mult_prob_error * token_scale_);
    metrics.Sum("gen_kl_error", totals.gen_kl * token_scale_);
    metrics.Sum("policy_kl_error", totals.policy_kl * token_scale_);
    metrics.Sum("js_divergence_error", totals.js * token_scale_);
    metrics.Sum("sampling_importance_ratio",
                totals.importance * (options_.sequence_level_ratios ? sequence_scale_ : token_scale_));
    metrics.Sum("num_valid_samples", totals.samples);
    metrics.Sum("approx_entropy", totals.entropy * token_scale_);
    if (options_.truncation != TruncationType::kNone) {
      metrics.Sum("is_oob_ratio",
                  totals.out_of_bounds *
                      (options_.truncation == TruncationType::kSequenceMask ? sequence_scale_ : token_scale_));
    }
    metrics.Sum("positive_nll_loss", nll);
    return loss;
  }

 private:
  T Previous(size_t t) const {
    return options_.force_on_policy_ratio ? batch_.current_logprobs[t] : batch_.prev_logprobs[t];
  }

  bool Counts(size_t t) const {
    return batch_.token_mask[t] != 0 && batch_.current_logprobs[t] != -std::numeric_limits<T>::infinity() &&
           Previous(t) != -std::numeric_limits<T>::infinity();
  }

  SequenceTerms Describe(size_t start, size_t end) const {
    SequenceTerms terms;
    if (options_.token_level_loss && !options_.sequence_level_ratios &&
        options_.truncation != TruncationType::kSequenceMask) {
      return terms;  // nobody reads them
    }
    for (size_t t = start + 1; t < end; ++t) {
      if (!Counts(t)) continue;
      const double mask = batch_.token_mask[t];
      terms.mask_sum += mask;
      terms.log_ratio_mean += mask * (batch_.current_logprobs[t] - Previous(t));
      terms.importance_log_sum += mask * (Previous(t) - batch_.generation_logprobs[t]);
    }
    terms.log_ratio_mean /= terms.mask_sum + kCountEpsilon;
    terms.importance_log_mean = terms.importance_log_sum / (terms.mask_sum + kCountEpsilon);
    return terms;
  }

  // Applies tis or icepop, and then drops what is not finite (an overflow is truncated to the bound, not dropped);
  // whether the weight was out of bounds.
  bool Truncate(T& weight) const {
    bool out = false;
    if (options_.truncation == TruncationType::kTis || options_.truncation == TruncationType::kIcePop) {
      out = weight > truncation_high_ || weight < truncation_low_;
      if (out) {
        weight = options_.truncation == TruncationType::kIcePop ? T{0}
                 : weight > truncation_high_                    ? truncation_high_
                                                                : truncation_low_;
      }
    }
    weight = FiniteOrZero(weight);
    return out;
  }

  // How far the generator's distribution is from the trainer's.
  void AddMismatch(double mask, T current, T previous, T generation) {
    const T difference = previous - generation;
    totals.mult_prob_error += mask * std::exp(std::abs(difference));
    totals.gen_kl += mask * Estimate(options_.kl_type, difference);
    totals.policy_kl += mask * Estimate(options_.kl_type, -difference);
    const T mixture = LogMean(previous, generation);
    totals.js += mask * 0.5 * (Estimate(KlType::kK3, previous - mixture) + Estimate(KlType::kK3, generation - mixture));
    totals.entropy -= mask * static_cast<double>(std::exp(current - generation) * current);
  }

  void AddKl(size_t t, double coefficient, T generation) {
    const T current = unfiltered_[t];
    const T weight = options_.on_policy_kl_approximation ? FiniteOrZero(std::exp(current - generation)) : T{1};
    const KlEstimate<T> kl = EstimateKl(options_.kl_type, current, batch_.reference_logprobs[t], weight,
                                        options_.kl_input_clamp, options_.kl_output_clamp);
    totals.kl += coefficient * kl.value;
    // d weight / d current = weight, whichever of the two it is.
    unfiltered_gradient_[t] +=
        static_cast<T>(coefficient * options_.kl_penalty * (kl.d_current + kl.d_weight * weight));
  }

  const ClippedPgOptions& options_;
  const PackedTokens<T>& batch_;
  std::span<T> current_gradient_;
  std::span<const T> unfiltered_;
  std::span<T> unfiltered_gradient_;
  double token_scale_, sequence_scale_, correct_scale_;
  T clamp_low_, clamp_high_, truncation_low_, truncation_high_;

 public:
  Totals totals;
};

}  // namespace

template <typename T>
double ClippedPgLoss(const ClippedPgOptions& options, const PackedTokens<T>& batch,
                     const LogprobGradients<T>& gradients, MetricSet& metrics) {
  Accumulator<T> accumulator(options, batch, gradients);
  size_t start = 0;
  for (size_t i = 0; i < batch.lengths.size(); ++i) {
    const size_t end = start + static_cast<size_t>(batch.lengths[i]);
    accumulator.AddSequence(i, start, end);
    start = end;
  }
  return accumulator.Report(metrics);
}

template double ClippedPgLoss<float>(const ClippedPgOptions&, const PackedTokens<float>&,
                                     const LogprobGradients<float>&, MetricSet&);
template double ClippedPgLoss<double>(const ClippedPgOptions&, const PackedTokens<double>&,
                                      const LogprobGradients<double>&, MetricSet&);

}  // namespace manta::train
