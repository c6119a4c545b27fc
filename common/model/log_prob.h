// Log-probabilities of given tokens from hidden states, with the logits of a bounded number of rows at a time: [chunk,
// vocab] is the most that exists, forward and backward, whatever the length of the batch.
//
// Gradients flow to `hidden` (through the returned tensors' graph) and into the parameters' gradient buffer for
// lm_head. Backward computes each chunk's logits a second time. Rows are independent: no result depends on the chunk
// size. Thread-safe like Forward.
#pragma once

#include <ATen/ATen.h>

#include "absl/status/statusor.h"
#include "common/model/parameters.h"

namespace manta::model {

struct LogProbOptions {
  double temperature = 1;  // logits are divided by it first; > 0
  int64_t top_k = 0;       // keep the k largest logits; 0: all
  double top_p = 1;        // then the smallest set of tokens whose probability reaches p
  bool entropy = false;    // of the (tempered, filtered) distribution
  // Of float32 logits at a time; 0: 64 rows or 1 MiB (what a core's cache holds) on the CPU, 256 MiB elsewhere.
  int64_t chunk_bytes = 0;
};

struct LogProbs {
  at::Tensor log_probs;  // [rows] float32: log p(target); -inf where the filters exclude the target (gradient 0 there)
  at::Tensor entropy;    // [rows] float32 in nats; undefined unless asked for
};

// hidden: [rows, hidden], row t the state that predicts targets[t]; targets: [rows] int64.
// INVALID_ARGUMENT for a target outside the vocabulary or options out of range.
[[nodiscard]] absl::StatusOr<LogProbs> TokenLogProbs(const Parameters& parameters, const at::Tensor& hidden,
                                                     const at::Tensor& targets, const LogProbOptions& options = {});

}  // namespace manta::model
