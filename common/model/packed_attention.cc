#include "common/model/packed_attention.h"

#include <torch/csrc/autograd/custom_function.h>

#include "common/kernels/attention.h"
#include "common/model/compute.h"

namespace manta::model {
namespace {

// Scores of one call's batch, a head: bounds what ATen holds where it writes them out.
constexpr int64_t kMaxScores = 1 << 23;

// A batch through ATen. q, k, v: [num_rows, heads, head_dim] of all sequences; -> [sequences * length, heads,
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

// A layout on its way to backward.
struct LayoutHolder : torch::CustomClassHolder {
  explicit LayoutHolder(std::shared_ptr<const PackedLayout> l) : layout(std::move(l)) {}
  const std::shared_ptr<const PackedLayout> layout;
};

// All sequences through the CPU kernel.
struct KernelAttention : torch::autograd::Function<KernelAttention> {
  using Context = torch::autograd::AutogradContext;
  static kernels::AttentionShape Shape(const at::Tensor& q, const at::Tensor& k, double scale, int64_t window) {
    return {q.size(1), k.size(1), q.size(2), static_cast<float>(scale), window};
  }
  static kernels::AttentionRows Rows(const PackedLayout& layout) {
    return {static_cast<int64_t>(layout.num_sequences()), layout.cu_seqlens.data(),
            layout.cu_prefixes.empty() ? nullptr : layout.cu_prefixes.data(), layout.prefix_rows.data()};
  }
  static at::Tensor forward(Context* ctx, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                            const AttentionSpec& spec, const std::shared_ptr<const PackedLayout>& layout) {
    at::Tensor out = at::empty_like(q), lse = at::empty({q.size(0), q.size(1)}, q.options());
    kernels::AttentionForward(Shape(q, k, spec.scale, spec.window), Rows(*layout), q.const_data_ptr<float>(),
                              k.const_data_ptr<float>(), v.const_data_ptr<float>(), out.data_ptr<float>(),
                              lse.data_ptr<float>());
    ctx->save_for_backward({q, k, v, out, lse});
    ctx->saved_data["layout"] = c10::IValue::make_capsule(c10::make_intrusive<LayoutHolder>(layout));
    ctx->saved_data["scale"] = spec.scale;
    ctx->saved_data["window"] = spec.window;
    return out;
  }
  static torch::autograd::variable_list backward(Context* ctx, torch::autograd::variable_list grads) {
    const torch::autograd::variable_list saved = ctx->get_saved_variables();
    const at::Tensor &q = saved[0], &k = saved[1], &v = saved[2], d_out = grads[0].contiguous();
    const auto holder = ctx->saved_data["layout"].toCapsule();
    const PackedLayout& layout = *static_cast<const LayoutHolder&>(*holder).layout;
    at::Tensor d_q = at::empty_like(q), d_k = at::empty_like(k), d_v = at::empty_like(v);
    kernels::AttentionBackward(Shape(q, k, ctx->saved_data["scale"].toDouble(), ctx->saved_data["window"].toInt()),
                               Rows(layout), q.const_data_ptr<float>(), k.const_data_ptr<float>(),
                               v.const_data_ptr<float>(), saved[3].const_data_ptr<float>(),
                               saved[4].const_data_ptr<float>(), d_out.const_data_ptr<float>(), d_q.data_ptr<float>(),
                               d_k.data_ptr<float>(), d_v.data_ptr<float>());
    return {d_q, d_k, d_v, at::Tensor(), at::Tensor()};
  }
};

}  // namespace

at::Tensor PackedAttention::Attend(const AttentionSpec& spec, const at::Tensor& q, const at::Tensor& k,
                                   const at::Tensor& v) {
  if (checked_rows_ != q.size(0)) {
    const std::string fault = LayoutFault(*layout_, q.size(0));
    TORCH_CHECK(fault.empty(), fault);
    checked_rows_ = q.size(0);
  }
  if (compute::UseKernels(q)) {
    return KernelAttention::apply(q.contiguous(), k.contiguous(), v.contiguous(), spec, layout_);
  }
  if (q.size(0) == 0) return at::empty_like(q);
  if (!batches_.has_value() || batches_->places.device() != q.device()) {
    batches_ = BatchSequences(*layout_, kMaxScores, q.device());
  }
  std::vector<at::Tensor> outputs;
  for (const SequenceBatch& batch : batches_->batches) outputs.push_back(AttendBatch(spec, batch, q, k, v));
  return at::cat(outputs).index_select(0, batches_->places);
}

at::Tensor PackedPositions(const PackedLayout& layout) {
  at::Tensor positions = at::empty({layout.num_rows()}, at::kLong);
  int64_t* p = positions.data_ptr<int64_t>();
  for (size_t s = 0; s < layout.num_sequences(); ++s) {
    const auto first = static_cast<int64_t>(layout.prefix(s).size());
    for (int64_t i = 0; i < layout.own(s); ++i) *p++ = first + i;
  }
  return positions;
}

at::Tensor PackedPositions(const std::vector<int64_t>& cu_seqlens) {
  return PackedPositions(PackedLayout{cu_seqlens, {}, {}});
}

}  // namespace manta::model
