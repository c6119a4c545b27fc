#include "worker_train/optimizer/adamw.h"

#include <algorithm>
#include <cmath>

#include "common/base/check.h"

namespace manta::train {

void AdamWStep(const AdamWOptions& options, int64_t step, float gradient_scale, std::span<const float> gradient,
               std::span<float> master, std::span<float> exp_avg, std::span<float> exp_avg_sq) {
  MANTA_CHECK(gradient.size() == master.size() && exp_avg.size() == master.size() &&
              exp_avg_sq.size() == master.size());
  const double correction1 = 1 - std::pow(options.beta1, static_cast<double>(step));
  const double correction2 = 1 - std::pow(options.beta2, static_cast<double>(step));
  const auto decay = static_cast<float>(1 - options.lr * options.weight_decay);
  const auto one_minus_beta1 = static_cast<float>(1 - options.beta1);
  const auto beta2 = static_cast<float>(options.beta2), one_minus_beta2 = static_cast<float>(1 - options.beta2);
  const auto step_size = static_cast<float>(options.lr / correction1);
  const auto root_correction = static_cast<float>(std::sqrt(correction2));
  const auto eps = static_cast<float>(options.eps);
  const float* __restrict__ g = gradient.data();
  float* __restrict__ p = master.data();
  float* __restrict__ m = exp_avg.data();
  float* __restrict__ v = exp_avg_sq.data();
  for (size_t i = 0; i < master.size(); ++i) {
    const float grad = g[i] * gradient_scale;
    m[i] += (grad - m[i]) * one_minus_beta1;
    v[i] = v[i] * beta2 + grad * grad * one_minus_beta2;
    p[i] = p[i] * decay - step_size * (m[i] / (std::sqrt(v[i]) / root_correction + eps));
  }
}

double SquaredNorm(std::span<const float> values) {
  // Eight partial sums, so that the compiler can use vectors without changing the result.
  double sums[8] = {};
  const size_t whole = values.size() / 8 * 8;
  for (size_t i = 0; i < whole; i += 8) {
    for (size_t j = 0; j < 8; ++j) sums[j] += static_cast<double>(values[i + j]) * values[i + j];
  }
  double total = 0;
  for (double sum : sums) total += sum;
  for (size_t i = whole; i < values.size(); ++i) total += static_cast<double>(values[i]) * values[i];
  return total;
}

double ClipScale(double norm, double max_norm) {
  return max_norm > 0 ? std::min(1.0, max_norm / (norm + 1e-6)) : 1.0;
}

}  // namespace manta::train
