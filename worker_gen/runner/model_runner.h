// The runner over common/model: the trainer's own forward pass, with attention over the paged cache.
//
// Pages of the cache that were never written cost no memory. On the CPU in float32 what a sequence gets does not depend,
// by a bit, on what else is in the step, on how its tokens were split over steps, on which blocks it shares, or on
// whether it is a fork.
//
// Not thread-safe: the engine's thread calls Step; weights are replaced between steps.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "common/model/parameters.h"
#include "worker_gen/runner/draw.h"
#include "worker_gen/runner/runner.h"
#include "worker_gen/runner/step_attention.h"

namespace manta::gen {

class ModelRunner : public Runner {
 public:
  // Packs the parameters' matrices for inference. The cache lies where the parameters do, in their type.
  // RESOURCE_EXHAUSTED where the cache does not fit in memory.
  static absl::StatusOr<std::unique_ptr<ModelRunner>> Create(model::Parameters parameters, int32_t num_blocks,
                                                             int32_t block_size);

  absl::Status Step(absl::Span<const SequenceChunk> chunks, absl::Span<absl::StatusOr<SampledToken>> drawn) override;

  const model::Parameters& parameters() const { return parameters_; }
  // Copies `values` ([flat size], as Parameters::flat_values) over the weights.
  void SetWeights(const at::Tensor& values);

  // Bytes of one block over all layers.
  static int64_t BlockBytes(const model::ModelConfig& config, int32_t block_size, int64_t element_bytes,
                            bool gpu);

 private:
  ModelRunner(model::Parameters parameters, std::unique_ptr<StepAttention> attention)
      : parameters_(std::move(parameters)), attention_(std::move(attention)) {}

  absl::Status Sample(const at::Tensor& hidden, absl::Span<const SequenceChunk> chunks,
                      absl::Span<absl::StatusOr<SampledToken>> drawn);

  model::Parameters parameters_;
  std::unique_ptr<StepAttention> attention_;
  // Of the step being made; members so that their storage is reused.
  std::vector<int64_t> tokens_, positions_;
  std::vector<int64_t> rows_, row_of_chunk_;  // rows_: of tokens_, those whose logits are wanted; chunks -> rows_
  std::vector<Draw> draws_;
  std::vector<BlockCopy> copies_;
};

}  // namespace manta::gen
