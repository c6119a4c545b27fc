#include "worker_train/loss/nll.h"

namespace manta::train {

template <typename T>
double NllLoss(const PackedTokens<T>& batch, const LogprobGradients<T>& gradients, MetricSet& metrics) {
  const double scale = 1.0 / (batch.global_valid_toks + kCountEpsilon);
  double sum = 0, tokens = 0, samples = 0;
  size_t start = 0;
  for (size_t i = 0; i < batch.lengths.size(); ++i) {
    const size_t end = start + static_cast<size_t>(batch.lengths[i]);
    samples += batch.sample_mask[i];
    if (start < end) gradients.current[start] = 0;
    for (size_t t = start + 1; t < end; ++t) {
      const T mask = batch.token_mask[t] * batch.sample_mask[i];
      gradients.current[t] = static_cast<T>(-mask * scale);
      if (mask == 0) continue;  // whatever a masked token's log-probability is
      sum -= static_cast<double>(mask) * batch.current_logprobs[t];
      tokens += mask;
    }
    start = end;
  }
  const double loss = sum * scale;
  metrics.Sum("loss", loss);
  metrics.Sum("num_unmasked_tokens", tokens);
  metrics.Sum("num_valid_samples", samples);
  return loss;
}

template double NllLoss<float>(const PackedTokens<float>&, const LogprobGradients<float>&, MetricSet&);
template double NllLoss<double>(const PackedTokens<double>&, const LogprobGradients<double>&, MetricSet&);

}  // namespace manta::train
