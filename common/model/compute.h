// Forward and backward of each operation on plain tensors, without autograd: the one place that chooses between the CPU
// kernels (float32 on the CPU) and ATen (CUDA, other types). Internal to common/model. Gradients of weights are added
// to the buffer given, in its type; an undefined buffer means none is wanted. They may throw c10::Error.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <utility>

#include "common/model/parameters.h"

namespace manta::model::compute {

// Whether the CPU kernels take this tensor.
bool UseKernels(const at::Tensor& x);

at::Tensor Embedding(const at::Tensor& tokens, const at::Tensor& weight);
void EmbeddingBackward(const at::Tensor& tokens, const at::Tensor& dy, const at::Tensor& grad);

at::Tensor Linear(const at::Tensor& x, const Weight& weight, const at::Tensor& bias);
at::Tensor AddLinear(const at::Tensor& residual, const at::Tensor& x, const Weight& weight, const at::Tensor& bias);
// The same over `residual`, which is returned.
at::Tensor AddLinear_(at::Tensor residual, const at::Tensor& x, const Weight& weight, const at::Tensor& bias);
at::Tensor LinearInputGradient(const at::Tensor& dy, const at::Tensor& weight);             // dy w
void AddWeightGradient(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& grad);  // grad += dy^T x
void AddBiasGradient(const at::Tensor& dy, const at::Tensor& grad);

// -> y, and 1 / sqrt(mean(x^2) + eps) for backward, [rows] float32.
std::pair<at::Tensor, at::Tensor> RmsNorm(const at::Tensor& x, const at::Tensor& weight, double eps);
at::Tensor RmsNormBackward(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& weight,
                           const at::Tensor& inverse, const at::Tensor& grad);

struct HeadShape {
  int64_t heads, kv_heads, head_dim;
};
struct SplitHeads {
  at::Tensor q, k, v;               // [rows, heads or kv_heads, head_dim]
  at::Tensor q_inverse, k_inverse;  // [rows, heads or kv_heads] of the norms; undefined without them
};
SplitHeads SplitNormRotate(const at::Tensor& qkv, const at::Tensor& q_norm, const at::Tensor& k_norm, double eps,
                           const at::Tensor& cos, const at::Tensor& sin, HeadShape shape);
// `d`: gradients of q, k, v, and the inverses that forward returned. Without norms, qkv and the norms are undefined.
at::Tensor SplitNormRotateBackward(const SplitHeads& d, const at::Tensor& qkv, const at::Tensor& q_norm,
                                   const at::Tensor& k_norm, const at::Tensor& cos, const at::Tensor& sin,
                                   HeadShape shape, const at::Tensor& q_grad, const at::Tensor& k_grad);

at::Tensor SiluMul(const at::Tensor& x);
at::Tensor SiluMulBackward(const at::Tensor& dy, const at::Tensor& x);

}  // namespace manta::model::compute
