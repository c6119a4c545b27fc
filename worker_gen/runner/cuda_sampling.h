// Draws tokens on the GPU where the logits are, with the sampler's rules (sampling/sampler.h): only the tokens and
// their log-probabilities come back.
#pragma once

#include <ATen/ATen.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/cuda/api.h"
#include "worker_gen/runner/draw.h"
#include "worker_gen/runner/runner.h"

namespace manta::gen {

// logits: [rows, vocab] float32 on the GPU, the step's rows from that of the first of `draws` to that of the last. The
// places in `drawn` of their chunks are filled. What has banned tokens is drawn on the CPU. May throw c10::Error.
absl::Status SampleOnGpu(const cuda::Api& api, const at::Tensor& logits, absl::Span<const SequenceChunk> chunks,
                         absl::Span<const Draw> draws, absl::Span<absl::StatusOr<SampledToken>> drawn);

}  // namespace manta::gen
