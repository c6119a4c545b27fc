#include "worker_train/loss/token_logprobs.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <vector>

namespace manta::train {

template <typename T>
void ApplyFilter(const SamplingFilter& filter, std::span<T> logits) {
  constexpr T kDropped = -std::numeric_limits<T>::infinity();
  const auto size = static_cast<int64_t>(logits.size());
  if (filter.top_k > 0 && filter.top_k < size) {
    std::vector<T> sorted(logits.begin(), logits.end());
    std::nth_element(sorted.begin(), sorted.begin() + (filter.top_k - 1), sorted.end(), std::greater<T>());
    const T threshold = sorted[filter.top_k - 1];
    for (T& logit : logits) {
      if (logit < threshold) logit = kDropped;
    }
  }
  if (!(filter.top_p > 0 && filter.top_p < 1)) return;
  // From the least likely up, tokens go while the mass so far is no more than 1 - top_p; the likeliest always stays.
  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return logits[a] < logits[b]; });
  const T highest = logits[order.back()];
  double total = 0;
  for (T logit : logits) total += std::exp(static_cast<double>(logit - highest));
  double mass = 0;
  for (size_t i = 0; i + 1 < order.size(); ++i) {
    mass += std::exp(static_cast<double>(logits[order[i]] - highest)) / total;
    if (mass > 1.0 - filter.top_p) break;
    logits[order[i]] = kDropped;
  }
}

template <typename T>
T TokenLogprob(std::span<const T> logits, int32_t token) {
  const T highest = *std::max_element(logits.begin(), logits.end());
  double total = 0;
  for (T logit : logits) total += std::exp(static_cast<double>(logit - highest));
  return static_cast<T>(static_cast<double>(logits[token] - highest) - std::log(total));
}

template <typename T>
void AddTokenLogprobGradient(std::span<const T> logits, int32_t token, T logprob, T scale, std::span<T> gradient) {
  if (scale == 0 || std::isinf(logprob)) return;
  const T log_total = logits[token] - logprob;
  for (size_t v = 0; v < logits.size(); ++v) gradient[v] -= scale * std::exp(logits[v] - log_total);
  gradient[token] += scale;
}

template void ApplyFilter<float>(const SamplingFilter&, std::span<float>);
template void ApplyFilter<double>(const SamplingFilter&, std::span<double>);
template float TokenLogprob<float>(std::span<const float>, int32_t);
template double TokenLogprob<double>(std::span<const double>, int32_t);
template void AddTokenLogprobGradient<float>(std::span<const float>, int32_t, float, float, std::span<float>);
template void AddTokenLogprobGradient<double>(std::span<const double>, int32_t, double, double, std::span<double>);

}  // namespace manta::train
