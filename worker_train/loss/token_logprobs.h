// The log-probability of one token from its row of logits, under a temperature and a sampling filter, and its gradient.
//
// Plain loops over one row: the reference that tensor code is compared with, and what runs where a filter applies. Pure
// functions, thread-safe. T is float or double; the normaliser is summed in double.
#pragma once

#include <cstdint>
#include <span>

namespace manta::train {

// The policy's sampling filter. A token is kept if its logit is among the top_k largest (ties with the k-th are kept)
// and, of the distribution over those, it lies in the smallest set of largest probabilities that reaches top_p.
struct SamplingFilter {
  int32_t top_k = 0;   // <= 0: off
  double top_p = 1.0;  // <= 0 or >= 1: off

  bool active(int64_t vocabulary) const { return (top_k > 0 && top_k < vocabulary) || (top_p > 0 && top_p < 1); }
};

// Sets the logits that the filter drops to -inf. At least one stays. Which of several equal logits at top_p's edge stay
// follows the order of the vocabulary: the later ones.
template <typename T>
void ApplyFilter(const SamplingFilter& filter, std::span<T> logits);

// log softmax(logits)[token]; -inf if the logit is.
template <typename T>
T TokenLogprob(std::span<const T> logits, int32_t token);

// gradient[v] += scale * d log softmax(logits)[token] / d logits[v]; `logprob` is what TokenLogprob returned. A token
// of log-probability -inf adds nothing.
template <typename T>
void AddTokenLogprobGradient(std::span<const T> logits, int32_t token, T logprob, T scale, std::span<T> gradient);

}  // namespace manta::train
