// The operations that a layer is made of, each with its backward. Internal to common/model.
//
// On the CPU in float32 they run the batch-invariant kernels of common/kernels; elsewhere (CUDA, other types) they are
// ATen's operations. Gradients of weights go straight into Weight::grad, activations' through autograd. They may throw
// c10::Error.
#pragma once

#include <ATen/ATen.h>

#include <tuple>

#include "common/model/parameters.h"

namespace manta::model::ops {

// weight rows of tokens: [num_tokens] int64 -> [num_tokens, hidden].
at::Tensor Embedding(const at::Tensor& tokens, const Weight& weight);

// x: [rows, in] -> x w^T + b: [rows, out].
at::Tensor Linear(const at::Tensor& x, const Weight& weight, const Weight& bias);

// residual + x w^T + b. Where gradients are off, `residual` [rows, out] is overwritten and returned.
at::Tensor AddLinear(const at::Tensor& residual, const at::Tensor& x, const Weight& weight, const Weight& bias);

// x / sqrt(mean(x^2) + eps) * w over the last dimension (Zhang and Sennrich, 2019). x: [rows, hidden].
at::Tensor RmsNorm(const at::Tensor& x, const Weight& weight, double eps);

// Splits qkv [rows, (heads + 2 kv_heads) * head_dim], normalises each query and key head where the norms are defined,
// and rotates queries and keys (halves, as Hugging Face pairs them) by cos, sin [rows, head_dim / 2].
// -> q [rows, heads, head_dim], k and v [rows, kv_heads, head_dim], all contiguous.
std::tuple<at::Tensor, at::Tensor, at::Tensor> SplitNormRotate(const at::Tensor& qkv, const Weight& q_norm,
                                                               const Weight& k_norm, double eps, const at::Tensor& cos,
                                                               const at::Tensor& sin, const ModelConfig& config);

// x: [rows, 2 n], gate then up -> silu(gate) * up: [rows, n].
at::Tensor SiluMul(const at::Tensor& x);

}  // namespace manta::model::ops
