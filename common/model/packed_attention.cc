#include "common/model/packed_attention.h"

namespace manta::model {
namespace {

// One sequence through ATen: [tokens, heads, head_dim] each.
at::Tensor AttendSequence(const AttentionSpec& spec, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
  const int64_t n = q.size(0);
  std::optional<at::Tensor> mask;
  if (spec.window > 0 && spec.window < n) {
    const at::Tensor ones = at::ones({n, n}, q.options().dtype(at::kBool));
    mask = ones.tril(0).logical_and(ones.triu(1 - spec.window));
  }
  const auto heads_first = [](const at::Tensor& x) { return x.transpose(0, 1).unsqueeze(0); };
  const at::Tensor out =
      at::scaled_dot_product_attention(heads_first(q), heads_first(k), heads_first(v), mask,
                                       /*dropout_p=*/0.0, /*is_causal=*/!mask.has_value(), spec.scale,
                                       /*enable_gqa=*/q.size(1) != k.size(1));
  return out.squeeze(0).transpose(0, 1).contiguous();
}

}  // namespace

at::Tensor PackedAttention::Attend(const AttentionSpec& spec, const at::Tensor& q, const at::Tensor& k,
                                   const at::Tensor& v) {
  TORCH_CHECK(!cu_seqlens_.empty() && cu_seqlens_.front() == 0 && cu_seqlens_.back() == q.size(0),
              "cu_seqlens must run from 0 to the number of tokens, ", q.size(0));
  std::vector<at::Tensor> outputs;
  for (size_t s = 0; s + 1 < cu_seqlens_.size(); ++s) {
    const int64_t begin = cu_seqlens_[s], length = cu_seqlens_[s + 1] - begin;
    TORCH_CHECK(length >= 0, "cu_seqlens must not fall");
    if (length == 0) continue;
    outputs.push_back(
        AttendSequence(spec, q.narrow(0, begin, length), k.narrow(0, begin, length), v.narrow(0, begin, length)));
  }
  return outputs.empty() ? at::empty_like(q) : at::cat(outputs);
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
