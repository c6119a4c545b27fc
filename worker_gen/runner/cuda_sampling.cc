#include "worker_gen/runner/cuda_sampling.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/random.h"
#include "common/base/status.h"
#include "worker_gen/sampling/sampler.h"

namespace manta::gen {
namespace {

// The kernel takes a row of logits for each draw: where some share one, it is repeated. [draws, vocab]
at::Tensor RowPerDraw(const at::Tensor& logits, absl::Span<const Draw> draws) {
  const int64_t count = static_cast<int64_t>(draws.size());
  if (count == logits.size(0)) return logits;
  at::Tensor rows = at::empty({count}, at::kLong);
  for (int64_t i = 0; i < count; ++i) rows.data_ptr<int64_t>()[i] = draws[i].row - draws[0].row;
  return logits.index_select(0, rows.to(logits.device()));
}

}  // namespace

absl::Status SampleOnGpu(const cuda::Api& api, const at::Tensor& some_logits, absl::Span<const SequenceChunk> chunks,
                         absl::Span<const Draw> draws, absl::Span<absl::StatusOr<SampledToken>> drawn) {
  const at::Tensor logits = RowPerDraw(some_logits, draws);
  const int64_t rows = logits.size(0), vocab = logits.size(1);
  std::vector<kernels::cuda::SamplingRow> in(rows);
  for (int64_t r = 0; r < rows; ++r) {
    const SequenceChunk& chunk = chunks[draws[r].chunk];
    const SamplingOptions& options = *chunk.options;
    in[r].temperature = static_cast<float>(options.temperature);
    in[r].top_k = options.top_k;
    in[r].top_p = static_cast<float>(options.top_p);
    in[r].min_p = static_cast<float>(options.min_p);
    in[r].uniform = UniformAt(options.seed, Sampler::kStream, static_cast<uint64_t>(chunk.position));
  }
  const auto bytes = [&](size_t n) { return at::empty({static_cast<int64_t>(n)}, logits.options().dtype(at::kByte)); };
  const at::Tensor rows_in = bytes(in.size() * sizeof(in[0]));
  std::vector<kernels::cuda::SampledRow> out(rows);
  const at::Tensor rows_out = bytes(out.size() * sizeof(out[0]));
  MANTA_RETURN_IF_ERROR(api.copy(rows_in.mutable_data_ptr(), in.data(), in.size() * sizeof(in[0])));
  const int error = api.sample(
      logits.const_data_ptr<float>(), static_cast<const kernels::cuda::SamplingRow*>(rows_in.const_data_ptr()),
      static_cast<kernels::cuda::SampledRow*>(rows_out.mutable_data_ptr()), rows, vocab, api.current_stream());
  if (error != 0) return absl::InternalError(absl::StrCat("sampling on the GPU: ", api.error_text(error)));
  MANTA_RETURN_IF_ERROR(api.copy(out.data(), rows_out.const_data_ptr(), out.size() * sizeof(out[0])));
  for (int64_t r = 0; r < rows; ++r) {
    const SequenceChunk& chunk = chunks[draws[r].chunk];
    if (out[r].token >= 0 && chunk.banned.empty()) {
      drawn[draws[r].chunk] = SampledToken{out[r].token, out[r].logprob, out[r].raw_logprob};
      continue;
    }
    // What the kernel does not know, and the errors' texts, are the sampler's.
    const at::Tensor row = logits.select(0, r).to(at::kCPU);
    thread_local Sampler sampler;
    drawn[draws[r].chunk] = sampler.Sample(absl::MakeConstSpan(row.const_data_ptr<float>(), vocab), *chunk.options,
                                           chunk.position, chunk.banned);
  }
  return absl::OkStatus();
}

}  // namespace manta::gen
