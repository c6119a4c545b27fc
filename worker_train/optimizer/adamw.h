// AdamW (Loshchilov and Hutter, arXiv 1711.05101) over flat float32 spans, and gradient clipping by global norm.
//
// Follows PyTorch's order of operations: decay first, then moments, then the bias-corrected step. Elementwise, so that
// a parameter's result does not depend on how the flat space is cut into shards. Functions without state, thread-safe.
#pragma once

#include <cstdint>
#include <span>

namespace manta::train {

struct AdamWOptions {
  double lr = 1e-3;
  double weight_decay = 0.01;
  double beta1 = 0.9, beta2 = 0.999;
  double eps = 1e-8;
};

// One update. `step` counts from 1. Gradients are multiplied by `gradient_scale` first (clipping). All spans have the
// same size; `master` and the moments are updated in place.
void AdamWStep(const AdamWOptions& options, int64_t step, float gradient_scale, std::span<const float> gradient,
               std::span<float> master, std::span<float> exp_avg, std::span<float> exp_avg_sq);

// Sum of squares, in double and in a fixed order.
double SquaredNorm(std::span<const float> values);

// What gradients are multiplied by so that their norm is at most `max_norm`: min(1, max_norm / (norm + 1e-6)); 1 where
// max_norm is 0.
double ClipScale(double norm, double max_norm);

}  // namespace manta::train
