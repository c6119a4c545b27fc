// The negative log-likelihood of supervised fine-tuning: -sum(m * logp) / (N_tok + 1e-8), with m the token mask times
// the sample mask. Pure function, thread-safe.
#pragma once

#include "worker_train/loss/metric_set.h"
#include "worker_train/loss/packed_tokens.h"

namespace manta::train {

// Returns this microbatch's part of the loss; metrics: loss, num_unmasked_tokens, num_valid_samples.
template <typename T>
double NllLoss(const PackedTokens<T>& batch, const LogprobGradients<T>& gradients, MetricSet& metrics);

}  // namespace manta::train
