#include "worker_gen/runner/model_runner.h"

#include <c10/core/InferenceMode.h>

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
size_t RowsAtOnce(int64_t vocab_size, bool gpu) {
  return std::max<int64_t>((int64_t{16} << (gpu ? 24 : 20)) / vocab_size, 16);
}

// Elements of logits below which waking a second thread costs more than it saves.
constexpr int64_t kElementsWorthAThread = 1 << 14;

at::Tensor Borrow(std::vector<int64_t>& values) {
  return at::from_blob(values.data(), {static_cast<int64_t>(values.size())}, at::kLong);
}

}  // namespace

int64_t ModelRunner::BlockBytes(const model::ModelConfig& config, int32_t block_size, int64_t element_bytes, bool gpu) {
  if (!gpu) return PagedAttention::BlockBytes(config, block_size);
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
  c10::InferenceMode inference;
  tokens_.clear();
  positions_.clear();
  rows_.clear();
  draws_.clear();
  copies_.clear();
  row_of_chunk_.assign(chunks.size(), -1);
  for (size_t c = 0; c < chunks.size(); ++c) {
    const SequenceChunk& chunk = chunks[c];
    for (size_t i = 0; i < chunk.tokens.size(); ++i) {
      tokens_.push_back(chunk.tokens[i]);
      positions_.push_back(chunk.num_computed + static_cast<int64_t>(i));
    }
    if (chunk.options == nullptr) continue;
    if (chunk.fork_of >= 0) {
      const size_t last = chunk.blocks.size() - 1;
      const int32_t from = chunks[chunk.fork_of].blocks[last];
      if (from != chunk.blocks[last]) copies_.push_back({from, chunk.blocks[last]});
      row_of_chunk_[c] = row_of_chunk_[chunk.fork_of];
    } else {
      row_of_chunk_[c] = static_cast<int64_t>(rows_.size());
      rows_.push_back(static_cast<int64_t>(tokens_.size()) - 1);
    }
    draws_.push_back({row_of_chunk_[c], static_cast<int32_t>(c)});
  }
  std::sort(draws_.begin(), draws_.end(),
            [](const Draw& a, const Draw& b) { return a.row != b.row ? a.row < b.row : a.chunk < b.chunk; });
  const at::Device device = parameters_.device();
  if (device.is_cuda()) MANTA_RETURN_IF_ERROR(cuda::Loaded()->set_device(device.index()));
  at::Tensor hidden;
  MANTA_RETURN_IF_ERROR(model::CatchAten("a step", [&]() -> absl::Status {
    attention_->SetChunks(chunks);
    MANTA_ASSIGN_OR_RETURN(
        hidden, model::Forward(parameters_, Borrow(tokens_).to(device), Borrow(positions_).to(device), *attention_));
    if (!copies_.empty()) attention_->CopyBlocks(copies_);
    return absl::OkStatus();
  }));
  if (rows_.empty()) return absl::OkStatus();
  return model::CatchAten("sampling", [&]() -> absl::Status {
    if (rows_.size() != tokens_.size()) hidden = hidden.index_select(0, Borrow(rows_).to(device));
    return Sample(hidden, chunks, drawn);
  });
}

// hidden: [rows_.size(), hidden]
absl::Status ModelRunner::Sample(const at::Tensor& hidden, absl::Span<const SequenceChunk> chunks,
                                 absl::Span<absl::StatusOr<SampledToken>> drawn) {
  const int64_t vocab = parameters_.config().vocab_size;
  const bool gpu = hidden.is_cuda();
  const size_t most = RowsAtOnce(vocab, gpu);
  for (size_t first = 0; first < draws_.size(); first += most) {  // so many draws have no more rows
    const absl::Span<const Draw> draws = absl::MakeConstSpan(draws_).subspan(first, most);
    const int64_t first_row = draws.front().row;
    MANTA_ASSIGN_OR_RETURN(const at::Tensor logits,
                           model::Logits(parameters_, hidden.narrow(0, first_row, draws.back().row + 1 - first_row)));
    if (gpu) {
      MANTA_RETURN_IF_ERROR(SampleOnGpu(*cuda::Loaded(), logits, chunks, draws, drawn));
      continue;
    }
    const float* data = logits.const_data_ptr<float>();
    const int64_t count = static_cast<int64_t>(draws.size());
    kernels::ParallelFor(count, kElementsWorthAThread / vocab + 1, [&](int64_t begin, int64_t end) {
      thread_local Sampler sampler;
      for (int64_t i = begin; i < end; ++i) {
        const SequenceChunk& chunk = chunks[draws[i].chunk];
        const auto row = absl::MakeConstSpan(data + (draws[i].row - first_row) * vocab, vocab);
        drawn[draws[i].chunk] = sampler.Sample(row, *chunk.options, chunk.position, chunk.banned);
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
