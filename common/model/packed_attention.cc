#include "common/model/packed_attention.h"

#include <torch/csrc/autograd/custom_function.h>

#include "common/kernels/attention.h"
#include "common/model/compute.h"

namespace manta::model {
namespace {

// Scores of one call's batch, a head: bounds what ATen holds where it writes them out.
constexpr int64_t kMaxScores = 1 << 23;

// A batch through ATen. q, k, v: [num_tokens, heads, head_dim] of all sequences; -> [sequences * length, heads,
// head_dim].
at::Tensor AttendBatch(const AttentionSpec& spec, const SequenceBatch& batch, const at::Tensor& q, const at::Tensor& k,
                       const at::Tensor& v) {
  const int64_t n = batch.length;
  std::optional<at::Tensor> mask;
  if (spec.window > 0 && spec.window < n) {
    const at::Tensor ones = at::ones({n, n}, q.options().dtype(at::kBool));
    mask = ones.tril(0).logical_and(ones.triu(1 - spec.window));
  }
  const auto gather = [&](const at::Tensor& x) {  // [sequences, heads, length, head_dim]
    return x.index_select(0, batch.tokens).view({batch.sequences, n, x.size(1), x.size(2)}).transpose(1, 2);
  };
  const at::Tensor out = at::scaled_dot_product_attention(gather(q), gather(k), gather(v), mask, /*dropout_p=*/0.0,
                                                          /*is_causal=*/!mask.has_value(), spec.scale,
                                                          /*enable_gqa=*/q.size(1) != k.size(1));
  return out.transpose(1, 2).reshape({batch.sequences * n, q.size(1), q.size(2)});
}

// All sequences through the CPU kernel.
struct KernelAttention : torch::autograd::Function<KernelAttention> {
  using Context = torch::autograd::AutogradContext;
  static kernels::AttentionShape Shape(const at::Tensor& q, const at::Tensor& k, double scale, int64_t window) {
    return {q.size(1), k.size(1), q.size(2), static_cast<float>(scale), window};
  }
  static at::Tensor forward(Context* ctx, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                            const AttentionSpec& spec, const std::vector<int64_t>& cu_seqlens) {
    at::Tensor out = at::empty_like(q), lse = at::empty({q.size(0), q.size(1)}, q.options());
    kernels::AttentionForward(Shape(q, k, spec.scale, spec.window), cu_seqlens.data(),
                              static_cast<int64_t>(cu_seqlens.size()) - 1, q.const_data_ptr<float>(),
                              k.const_data_ptr<float>(), v.const_data_ptr<float>(), out.data_ptr<float>(),
                              lse.data_ptr<float>());
    ctx->save_for_backward({q, k, v, out, lse});
    ctx->saved_data["cu_seqlens"] = cu_seqlens;
    ctx->saved_data["scale"] = spec.scale;
    ctx->saved_data["window"] = spec.window;
    return out;
  }
  static torch::autograd::variable_list backward(Context* ctx, torch::autograd::variable_list grads) {
    const torch::autograd::variable_list saved = ctx->get_saved_variables();
    const at::Tensor &q = saved[0], &k = saved[1], &v = saved[2], d_out = grads[0].contiguous();
    const std::vector<int64_t> cu_seqlens = ctx->saved_data["cu_seqlens"].toIntVector();
    at::Tensor d_q = at::empty_like(q), d_k = at::empty_like(k), d_v = at::empty_like(v);
    kernels::AttentionBackward(
        Shape(q, k, ctx->saved_data["scale"].toDouble(), ctx->saved_data["window"].toInt()), cu_seqlens.data(),
        static_cast<int64_t>(cu_seqlens.size()) - 1, q.const_data_ptr<float>(), k.const_data_ptr<float>(),
        v.const_data_ptr<float>(), saved[3].const_data_ptr<float>(), saved[4].const_data_ptr<float>(),
        d_out.const_data_ptr<float>(), d_q.data_ptr<float>(), d_k.data_ptr<float>(), d_v.data_ptr<float>());
    return {d_q, d_k, d_v, at::Tensor(), at::Tensor()};
  }
};

}  // namespace

at::Tensor PackedAttention::Attend(const AttentionSpec& spec, const at::Tensor& q, const at::Tensor& k,
                                   const at::Tensor& v) {
  TORCH_CHECK(!cu_seqlens_.empty() && cu_seqlens_.front() == 0 && cu_seqlens_.back() == q.size(0),
              "cu_seqlens must run from 0 to the number of tokens, ", q.size(0));
  for (size_t s = 0; s + 1 < cu_seqlens_.size(); ++s) {
    TORCH_CHECK(cu_seqlens_[s] <= cu_seqlens_[s + 1], "cu_seqlens must not fall");
  }
  if (compute::UseKernels(q)) {
    return KernelAttention::apply(q.contiguous(), k.contiguous(), v.contiguous(), spec, cu_seqlens_);
  }
  if (q.size(0) == 0) return at::empty_like(q);
  if (!batches_.has_value() || batches_->places.device() != q.device()) {
    batches_ = BatchSequences(cu_seqlens_, kMaxScores, q.device());
  }
  std::vector<at::Tensor> outputs;
  for (const SequenceBatch& batch : batches_->batches) outputs.push_back(AttendBatch(spec, batch, q, k, v));
  return at::cat(outputs).index_select(0, batches_->places);
}

at::Tensor PackedPositions(const std::vector<int64_t>& cu_seqlens) {
  at::Tensor positions = at::empty({cu_seqlens.empty() ? 0 : cu_seqlens.back()}, at::kLong);
  int64_t* p = positions.data_ptr<int64_t>();
  for (size_t s = 0; s + 1 < cu_seqlens.size(); ++s) {
    for (int64_t i = 0; i < cu_seqlens[s + 1] - cu_seqlens[s]; ++i) *p++ = i;
  }
  return positions;
}

}  // namespace manta::model
