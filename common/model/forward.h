// The model: tokens to hidden states. One definition of each architecture for training, log-probabilities and
// generation; what differs is the attention backend. From hidden states go on with log_prob.h (log-probabilities
// without the whole logits) or Logits (few rows, for sampling).
//
// On the CPU in float32 every row is computed in an order that depends on neither the number of rows nor their
// neighbours. Thread-safe for different backends over the same parameters, as long as no one changes values. ATen's
// exceptions do not leave these functions.
#pragma once

#include <ATen/ATen.h>

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "common/model/attention_backend.h"
#include "common/model/parameters.h"

namespace manta::model {

struct ForwardOptions {
  // Where not null: receives [num_tokens, hidden] num_layers + 1 times, the embedding and each layer's output (before
  // the final norm).
  std::vector<at::Tensor>* layer_outputs = nullptr;
  // Activation checkpointing, where not null: of each layer only its input is kept, and backward runs the layer again,
  // attending through this backend, which the graph keeps alive. It must do what `attention` does; mostly it is that.
  std::shared_ptr<AttentionBackend> recompute_with;
};

// tokens, positions: [num_tokens] int64. Returns hidden states after the final norm, [num_tokens, hidden] of the
// parameters' type. Under at::NoGradGuard, or without EnableGradients, nothing is kept for backward. INVALID_ARGUMENT
// for a token outside the vocabulary or a negative position.
[[nodiscard]] absl::StatusOr<at::Tensor> Forward(const Parameters& parameters, const at::Tensor& tokens,
                                                 const at::Tensor& positions, AttentionBackend& attention,
                                                 const ForwardOptions& options = {});

// hidden: [rows, hidden] -> [rows, vocab] float32. Holds all of them: for sampling and tests.
[[nodiscard]] absl::StatusOr<at::Tensor> Logits(const Parameters& parameters, const at::Tensor& hidden);

}  // namespace manta::model
