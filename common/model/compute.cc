#include "common/model/compute.h"

#include <tuple>

#include "common/kernels/gemm.h"
#include "common/kernels/rows.h"

namespace manta::model::compute {
namespace {

const float* Data(const at::Tensor& x) {
  return x.defined() ? x.const_data_ptr<float>() : nullptr;
}
float* MutableData(const at::Tensor& x) {
  return x.defined() ? x.data_ptr<float>() : nullptr;
}

kernels::HeadsShape KernelShape(HeadShape s) {
  return {s.heads, s.kv_heads, s.head_dim};
}

// y [m, n] = x w^T + bias, added to what y holds where `accumulate`.
void MultiplyInto(at::Tensor& y, const at::Tensor& x, const Weight& weight, const at::Tensor& bias, bool accumulate) {
  const at::Tensor rows = x.contiguous();
  const int64_t m = x.size(0), k = x.size(1), n = weight.value.size(0);
  if (weight.packed != nullptr) {
    kernels::Gemm(m, Data(rows), k, *weight.packed, Data(bias), accumulate, MutableData(y), n);
  } else {
    kernels::Gemm(m, n, k, {Data(rows), k, 1}, {Data(weight.value), 1, k}, Data(bias), accumulate, MutableData(y), n);
  }
}

// The type that sums are taken in.
at::ScalarType WideType(const at::Tensor& x) {
  return x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

// Rotates halves: (a, b) -> (a cos - b sin, b cos + a sin). x: [rows, heads, head_dim] in the wide type; cos, sin:
// [rows, head_dim / 2].
at::Tensor Rotate(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin) {
  const at::Tensor c = cos.unsqueeze(1).to(x.scalar_type()), s = sin.unsqueeze(1).to(x.scalar_type());
  const std::vector<at::Tensor> halves = x.chunk(2, -1);
  return at::cat({halves[0] * c - halves[1] * s, halves[1] * c + halves[0] * s}, -1);
}

}  // namespace

bool UseKernels(const at::Tensor& x) {
  return x.is_cpu() && x.scalar_type() == at::kFloat;
}

at::Tensor Embedding(const at::Tensor& tokens, const at::Tensor& weight) {
  return weight.index_select(0, tokens);
}

void EmbeddingBackward(const at::Tensor& tokens, const at::Tensor& dy, const at::Tensor& grad) {
  if (grad.defined()) grad.index_add_(0, tokens, dy.to(grad.scalar_type()));
}

at::Tensor Linear(const at::Tensor& x, const Weight& weight, const at::Tensor& bias) {
  if (UseKernels(x)) {
    at::Tensor y = at::empty({x.size(0), weight.value.size(0)}, x.options());
    MultiplyInto(y, x, weight, bias, /*accumulate=*/false);
    return y;
  }
  return bias.defined() ? at::addmm(bias, x, weight.value.t()) : at::mm(x, weight.value.t());
}

at::Tensor AddLinear(const at::Tensor& residual, const at::Tensor& x, const Weight& weight, const at::Tensor& bias) {
  if (UseKernels(x)) return AddLinear_(residual.clone(at::MemoryFormat::Contiguous), x, weight, bias);
  const at::Tensor y = at::addmm(residual, x, weight.value.t());
  return bias.defined() ? y + bias : y;
}

at::Tensor AddLinear_(at::Tensor residual, const at::Tensor& x, const Weight& weight, const at::Tensor& bias) {
  if (UseKernels(x) && residual.is_contiguous()) {
    MultiplyInto(residual, x, weight, bias, /*accumulate=*/true);
    return residual;
  }
  residual.addmm_(x, weight.value.t());
  return bias.defined() ? residual.add_(bias) : residual;
}

at::Tensor LinearInputGradient(const at::Tensor& dy, const at::Tensor& weight) {
  if (!UseKernels(dy)) return at::mm(dy, weight);
  const at::Tensor rows = dy.contiguous();
  const int64_t m = dy.size(0), k = dy.size(1), n = weight.size(1);
  at::Tensor dx = at::empty({m, n}, dy.options());
  kernels::Gemm(m, n, k, {Data(rows), k, 1}, {Data(weight), n, 1}, nullptr, false, MutableData(dx), n);
  return dx;
}

void AddWeightGradient(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& grad) {
  if (UseKernels(dy)) {
    const at::Tensor d = dy.contiguous(), rows = x.contiguous();
    const int64_t m = dy.size(1), k = dy.size(0), n = x.size(1);
    kernels::Gemm(m, n, k, {Data(d), 1, m}, {Data(rows), n, 1}, nullptr, true, MutableData(grad), n);
    return;
  }
  if (dy.scalar_type() == grad.scalar_type()) {
    grad.addmm_(dy.t(), x);
  } else {
    grad.add_(at::mm(dy.t(), x));
  }
}

void AddBiasGradient(const at::Tensor& dy, const at::Tensor& grad) {
  grad.add_(dy.sum(0, false, grad.scalar_type()));
}

std::pair<at::Tensor, at::Tensor> RmsNorm(const at::Tensor& x, const at::Tensor& weight, double eps) {
  if (UseKernels(x) && x.dim() == 2) {
    const at::Tensor rows = x.contiguous();
    at::Tensor y = at::empty_like(rows), inverse = at::empty({x.size(0)}, x.options());
    kernels::RmsNormForward(x.size(0), x.size(1), Data(rows), Data(weight), static_cast<float>(eps), MutableData(y),
                            MutableData(inverse));
    return {y, inverse};
  }
  const at::Tensor wide = x.to(WideType(x));
  const at::Tensor inverse = at::rsqrt(wide.square().mean(-1) + eps);
  return {(wide * inverse.unsqueeze(-1)).to(x.scalar_type()) * weight, inverse};
}

at::Tensor RmsNormBackward(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& weight,
                           const at::Tensor& inverse, const at::Tensor& grad) {
  if (UseKernels(x) && x.dim() == 2) {
    const at::Tensor rows = x.contiguous();
    at::Tensor dx = at::empty_like(rows);
    kernels::RmsNormBackward(x.size(0), x.size(1), Data(dy), Data(rows), Data(weight), Data(inverse), MutableData(dx),
                             MutableData(grad));
    return dx;
  }
  const at::ScalarType wide = WideType(x);
  const at::Tensor normed = x.to(wide) * inverse.unsqueeze(-1);
  if (grad.defined()) grad.add_((dy.to(wide) * normed).reshape({-1, x.size(-1)}).sum(0));
  const at::Tensor g = dy.to(wide) * weight.to(wide);
  return ((g - normed * (g * normed).mean(-1, true)) * inverse.unsqueeze(-1)).to(x.scalar_type());
}

SplitHeads SplitNormRotate(const at::Tensor& qkv, const at::Tensor& q_norm, const at::Tensor& k_norm, double eps,
                           const at::Tensor& cos, const at::Tensor& sin, HeadShape shape) {
  const int64_t rows = qkv.size(0), q_size = shape.heads * shape.head_dim, kv_size = shape.kv_heads * shape.head_dim;
  SplitHeads heads;
  if (UseKernels(qkv)) {
    const at::Tensor x = qkv.contiguous();
    heads.q = at::empty({rows, shape.heads, shape.head_dim}, qkv.options());
    heads.k = at::empty({rows, shape.kv_heads, shape.head_dim}, qkv.options());
    heads.v = at::empty_like(heads.k);
    if (q_norm.defined()) {
      heads.q_inverse = at::empty({rows, shape.heads}, qkv.options());
      heads.k_inverse = at::empty({rows, shape.kv_heads}, qkv.options());
    }
    kernels::SplitNormRotateForward(rows, KernelShape(shape), Data(x), Data(q_norm), Data(k_norm),
                                    static_cast<float>(eps), Data(cos), Data(sin), MutableData(heads.q),
                                    MutableData(heads.k), MutableData(heads.v), MutableData(heads.q_inverse),
                                    MutableData(heads.k_inverse));
    return heads;
  }
  heads.q = qkv.narrow(1, 0, q_size).view({rows, shape.heads, shape.head_dim});
  heads.k = qkv.narrow(1, q_size, kv_size).view({rows, shape.kv_heads, shape.head_dim});
  heads.v = qkv.narrow(1, q_size + kv_size, kv_size).view({rows, shape.kv_heads, shape.head_dim}).contiguous();
  if (q_norm.defined()) {
    std::tie(heads.q, heads.q_inverse) = RmsNorm(heads.q, q_norm, eps);
    std::tie(heads.k, heads.k_inverse) = RmsNorm(heads.k, k_norm, eps);
  }
  heads.q = Rotate(heads.q.to(WideType(qkv)), cos, sin).to(qkv.scalar_type());
  heads.k = Rotate(heads.k.to(WideType(qkv)), cos, sin).to(qkv.scalar_type());
  return heads;
}

at::Tensor SplitNormRotateBackward(const SplitHeads& d, const at::Tensor& qkv, const at::Tensor& q_norm,
                                   const at::Tensor& k_norm, const at::Tensor& cos, const at::Tensor& sin,
                                   HeadShape shape, const at::Tensor& q_grad, const at::Tensor& k_grad) {
  const int64_t rows = d.q.size(0), q_size = shape.heads * shape.head_dim, kv_size = shape.kv_heads * shape.head_dim;
  if (UseKernels(d.q)) {
    const at::Tensor x = qkv.defined() ? qkv.contiguous() : at::Tensor();
    at::Tensor d_qkv = at::empty({rows, q_size + 2 * kv_size}, d.q.options());
    kernels::SplitNormRotateBackward(rows, KernelShape(shape), Data(d.q), Data(d.k), Data(d.v), Data(x), Data(q_norm),
                                     Data(k_norm), Data(d.q_inverse), Data(d.k_inverse), Data(cos), Data(sin),
                                     MutableData(d_qkv), MutableData(q_grad), MutableData(k_grad));
    return d_qkv;
  }
  // The inverse of a rotation is its transpose: the angle's sign changes.
  const at::Tensor back = -sin;
  at::Tensor dq = Rotate(d.q.to(WideType(d.q)), cos, back).to(d.q.scalar_type());
  at::Tensor dk = Rotate(d.k.to(WideType(d.k)), cos, back).to(d.k.scalar_type());
  if (q_norm.defined()) {
    const at::Tensor q = qkv.narrow(1, 0, q_size).view({rows, shape.heads, shape.head_dim});
    const at::Tensor k = qkv.narrow(1, q_size, kv_size).view({rows, shape.kv_heads, shape.head_dim});
    dq = RmsNormBackward(dq, q, q_norm, d.q_inverse, q_grad);
    dk = RmsNormBackward(dk, k, k_norm, d.k_inverse, k_grad);
  }
  return at::cat({dq.reshape({rows, q_size}), dk.reshape({rows, kv_size}), d.v.reshape({rows, kv_size})}, 1);
}

at::Tensor SiluMul(const at::Tensor& x) {
  if (UseKernels(x)) {
    const at::Tensor rows = x.contiguous();
    at::Tensor y = at::empty({x.size(0), x.size(1) / 2}, x.options());
    kernels::SiluMulForward(x.size(0), x.size(1) / 2, Data(rows), MutableData(y));
    return y;
  }
  const std::vector<at::Tensor> halves = x.chunk(2, -1);
  return at::silu(halves[0]) * halves[1];
}

at::Tensor SiluMulBackward(const at::Tensor& dy, const at::Tensor& x) {
  if (UseKernels(x)) {
    const at::Tensor rows = x.contiguous();
    at::Tensor dx = at::empty_like(rows);
    kernels::SiluMulBackward(x.size(0), x.size(1) / 2, Data(dy), Data(rows), MutableData(dx));
    return dx;
  }
  const std::vector<at::Tensor> halves = x.chunk(2, -1);
  return at::cat({at::silu_backward(dy * halves[1], halves[0]), dy * at::silu(halves[0])}, -1);
}

}  // namespace manta::model::compute
