// Per-token estimates of KL(current || reference) from one sample, with their gradients (Schulman, "Approximating KL
// divergence", 2020): with logr = ref - cur, k1 = -logr, k2 = logr^2 / 2, k3 = e^logr - 1 - logr.
//
// The weight carries the gradient of the sampling distribution (arXiv 2506.09477); it is 1 on policy. Where the input
// clamp binds, neither the estimate nor the weight has a gradient; where the output clamp binds, nothing has.
#pragma once

#include <algorithm>
#include <cmath>
#include <optional>

namespace manta::train {

enum class KlType { kK1, kK2, kK3 };

template <typename T>
struct KlEstimate {
  T value;
  T d_current;  // d value / d cur, the weight held fixed
  T d_weight;   // d value / d weight
};

template <typename T>
KlEstimate<T> EstimateKl(KlType type, T current, T reference, T weight, std::optional<double> input_clamp,
                         std::optional<double> output_clamp) {
  T log_ratio = reference - current;
  bool inside = true;
  if (input_clamp) {
    const T bound = static_cast<T>(*input_clamp);
    inside = std::abs(log_ratio) <= bound;
    log_ratio = std::clamp(log_ratio, -bound, bound);
  }
  T kl = 0, d_log_ratio = 0;
  switch (type) {
    case KlType::kK1:
      kl = -log_ratio;
      d_log_ratio = -1;
      break;
    case KlType::kK2:
      kl = log_ratio * log_ratio / 2;
      d_log_ratio = log_ratio;
      break;
    case KlType::kK3:
      d_log_ratio = std::expm1(log_ratio);
      kl = d_log_ratio - log_ratio;
      break;
  }
  KlEstimate<T> result{weight * kl, 0, 0};
  bool passes = inside;
  if (output_clamp) {
    const T bound = static_cast<T>(*output_clamp);
    passes = passes && std::abs(result.value) <= bound;
    result.value = std::clamp(result.value, -bound, bound);
  }
  if (passes) {
    result.d_current = -weight * d_log_ratio;
    result.d_weight = kl;
  }
  return result;
}

}  // namespace manta::train
