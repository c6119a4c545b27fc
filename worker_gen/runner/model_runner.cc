#include "worker_gen/runner/model_runner.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <utility>

#include "common/base/status.h"
#include "common/cuda/load.h"
#include "common/kernels/parallel.h"
#include "common/model/catch_aten.h"
#include "common/model/forward.h"
#include "worker_gen/runner/cuda_paged_attention.h"
#include "worker_gen/runner/cuda_sampling.h"
#include "worker_gen/runner/paged_attention.h"

namespace manta::gen {
namespace {

// Rows of logits held at once: 64 MiB of them at most (1 GiB on a GPU), but always some.
int64_t RowsAtOnce(int64_t vocab_size, bool gpu) {
  return std::max<int64_t>((int64_t{16} << (gpu ? 24 : 20)) / vocab_size, 16);
}

// Elements of logits below which waking a second thread costs more than it saves.
constexpr int64_t kElementsWorthAThread = 1 << 14;

at::Tensor Borrow(std::vector<int64_t>& values) {
  return at::from_blob(values.data(), {static_cast<int64_t>(values.size())}, at::kLong);
}

}  // namespace

int64_t ModelRunner::BlockBytes(const model::ModelConfig& config, int32_t block_size, int64_t element_bytes) {
  return config.num_layers * 2 * block_size * config.num_kv_heads * config.head_dim * element_bytes;
}

absl::StatusOr<std::unique_ptr<ModelRunner>> ModelRunner::Create(model::Parameters parameters, int32_t num_blocks,
                                                                 int32_t block_size) {
  return model::CatchAten("the paged cache", [&]() -> absl::StatusOr<std::unique_ptr<ModelRunner>> {
    std::unique_ptr<StepAttention> attention;
    if (parameters.device().is_cuda()) {
      MANTA_ASSIGN_OR_RETURN(const cuda::Api* api, cuda::Load());
      attention = std::make_unique<CudaPagedAttention>(api, parameters.config(), num_blocks, block_size,
                                                       parameters.dtype(), parameters.device());
    } else {
      attention = std::make_unique<PagedAttention>(parameters.config(), num_blocks, block_size);
    }
    parameters.PackForInference();
    return std::unique_ptr<ModelRunner>(new ModelRunner(std::move(parameters), std::move(attention)));
  });
}

absl::Status ModelRunner::Step(absl::Span<const SequenceChunk> chunks, absl::Span<absl::StatusOr<SampledToken>> drawn) {
  at::NoGradGuard no_grad;
  tokens_.clear();
  positions_.clear();
  rows_.clear();
  sampled_.clear();
  for (size_t c = 0; c < chunks.size(); ++c) {
    const SequenceChunk& chunk = chunks[c];
    for (size_t i = 0; i < chunk.tokens.size(); ++i) {
      tokens_.push_back(chunk.tokens[i]);
      positions_.push_back(chunk.num_computed + static_cast<int64_t>(i));
    }
    if (chunk.options == nullptr) continue;
    rows_.push_back(static_cast<int64_t>(tokens_.size()) - 1);
    sampled_.push_back(static_cast<int32_t>(c));
  }
  const at::Device device = parameters_.device();
  if (device.is_cuda()) MANTA_RETURN_IF_ERROR(cuda::Loaded()->set_device(device.index()));
  at::Tensor hidden;
  MANTA_RETURN_IF_ERROR(model::CatchAten("a step", [&]() -> absl::Status {
    attention_->SetChunks(chunks);
    MANTA_ASSIGN_OR_RETURN(
        hidden, model::Forward(parameters_, Borrow(tokens_).to(device), Borrow(positions_).to(device), *attention_));
    return absl::OkStatus();
  }));
  if (rows_.empty()) return absl::OkStatus();
  return model::CatchAten("sampling", [&]() -> absl::Status {
    if (rows_.size() != tokens_.size()) hidden = hidden.index_select(0, Borrow(rows_).to(device));
    return Sample(hidden, chunks, drawn);
  });
}

// hidden: [sampled_.size(), hidden]
absl::Status ModelRunner::Sample(const at::Tensor& hidden, absl::Span<const SequenceChunk> chunks,
                                 absl::Span<absl::StatusOr<SampledToken>> drawn) {
  const int64_t num_rows = hidden.size(0), vocab = parameters_.config().vocab_size;
  const bool gpu = hidden.is_cuda();
  const int64_t most = RowsAtOnce(vocab, gpu);
  for (int64_t first = 0; first < num_rows; first += most) {
    const int64_t count = std::min(most, num_rows - first);
    MANTA_ASSIGN_OR_RETURN(const at::Tensor logits, model::Logits(parameters_, hidden.narrow(0, first, count)));
    if (gpu) {
      MANTA_RETURN_IF_ERROR(
          SampleOnGpu(*cuda::Loaded(), logits, chunks, absl::MakeConstSpan(sampled_).subspan(first, count), drawn));
      continue;
    }
    const float* data = logits.const_data_ptr<float>();
    kernels::ParallelFor(count, kElementsWorthAThread / vocab + 1, [&](int64_t begin, int64_t end) {
      thread_local Sampler sampler;
      for (int64_t r = begin; r < end; ++r) {
        const int32_t c = sampled_[first + r];
        const SequenceChunk& chunk = chunks[c];
        drawn[c] =
            sampler.Sample(absl::MakeConstSpan(data + r * vocab, vocab), *chunk.options, chunk.position, chunk.banned);
      }
    });
  }
  return absl::OkStatus();
}

void ModelRunner::SetWeights(const at::Tensor& values) {
  parameters_.flat_values().copy_(values);
  parameters_.ValuesChanged();
}

}  // namespace manta::gen
