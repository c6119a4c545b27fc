#include "common/model/ops.h"

#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/custom_function.h>

#include "common/model/compute.h"

namespace manta::model::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// A weight's gradient buffer travels to backward beside the saved tensors.
void KeepGrad(AutogradContext* ctx, const char* name, const Weight& weight) {
  if (weight.grad.defined()) ctx->saved_data[name] = weight.grad;
}
at::Tensor KeptGrad(AutogradContext* ctx, const char* name) {
  const auto it = ctx->saved_data.find(name);
  return it == ctx->saved_data.end() ? at::Tensor() : it->second.toTensor();
}

struct EmbeddingFunction : torch::autograd::Function<EmbeddingFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& value, const at::Tensor& tokens,
                            const Weight& weight) {
    ctx->save_for_backward({tokens});
    KeepGrad(ctx, "grad", weight);
    return compute::Embedding(tokens, value);
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    compute::EmbeddingBackward(ctx->get_saved_variables()[0], grads[0], KeptGrad(ctx, "grad"));
    return {at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

// Backward of x w^T + b, where x is the function's input `x_index`: adds to the weights' gradients, -> d_x.
at::Tensor BackwardOfLinear(AutogradContext* ctx, const at::Tensor& dy, size_t x_index) {
  const variable_list saved = ctx->get_saved_variables();
  at::Tensor dx;
  if (ctx->needs_input_grad(x_index)) dx = compute::LinearInputGradient(dy, saved[1]);
  if (at::Tensor grad = KeptGrad(ctx, "grad"); grad.defined()) compute::AddWeightGradient(dy, saved[0], grad);
  if (at::Tensor grad = KeptGrad(ctx, "bias_grad"); grad.defined()) compute::AddBiasGradient(dy, grad);
  return dx;
}

struct LinearFunction : torch::autograd::Function<LinearFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& value, const Weight& weight,
                            const Weight& bias) {
    ctx->save_for_backward({x, value});
    KeepGrad(ctx, "grad", weight);
    KeepGrad(ctx, "bias_grad", bias);
    return compute::Linear(x, weight, bias.value);
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    return {BackwardOfLinear(ctx, grads[0].contiguous(), 0), at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

struct AddLinearFunction : torch::autograd::Function<AddLinearFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& residual, const at::Tensor& x,
                            const at::Tensor& value, const Weight& weight, const Weight& bias) {
    ctx->save_for_backward({x, value});
    KeepGrad(ctx, "grad", weight);
    KeepGrad(ctx, "bias_grad", bias);
    return compute::AddLinear(residual, x, weight, bias.value);
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const at::Tensor dy = grads[0].contiguous();
    return {dy, BackwardOfLinear(ctx, dy, 1), at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

struct RmsNormFunction : torch::autograd::Function<RmsNormFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& value, const Weight& weight,
                            double eps) {
    auto [y, inverse] = compute::RmsNorm(x, value, eps);
    ctx->save_for_backward({x, value, inverse});
    KeepGrad(ctx, "grad", weight);
    return y;
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor dx =
        compute::RmsNormBackward(grads[0].contiguous(), saved[0], saved[1], saved[2], KeptGrad(ctx, "grad"));
    return {dx, at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

struct SplitNormRotateFunction : torch::autograd::Function<SplitNormRotateFunction> {
  static variable_list forward(AutogradContext* ctx, const at::Tensor& qkv, const Weight& q_norm, const Weight& k_norm,
                               double eps, const at::Tensor& cos, const at::Tensor& sin, compute::HeadShape shape) {
    compute::SplitHeads heads = compute::SplitNormRotate(qkv, q_norm.value, k_norm.value, eps, cos, sin, shape);
    // Undefined tensors cannot be saved: the rest is saved only where there are norms.
    variable_list saved = {cos, sin};
    if (q_norm.defined()) {
      saved.insert(saved.end(), {qkv, q_norm.value, k_norm.value, heads.q_inverse, heads.k_inverse});
    }
    ctx->save_for_backward(saved);
    KeepGrad(ctx, "q_grad", q_norm);
    KeepGrad(ctx, "k_grad", k_norm);
    ctx->saved_data["shape"] = std::vector<int64_t>{shape.heads, shape.kv_heads, shape.head_dim};
    return {heads.q, heads.k, heads.v};
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    variable_list saved = ctx->get_saved_variables();
    saved.resize(7);
    const std::vector<int64_t> s = ctx->saved_data["shape"].toIntVector();
    compute::SplitHeads d;
    d.q = grads[0].contiguous();
    d.k = grads[1].contiguous();
    d.v = grads[2].contiguous();
    d.q_inverse = saved[5];
    d.k_inverse = saved[6];
    const at::Tensor dqkv =
        compute::SplitNormRotateBackward(d, saved[2], saved[3], saved[4], saved[0], saved[1], {s[0], s[1], s[2]},
                                         KeptGrad(ctx, "q_grad"), KeptGrad(ctx, "k_grad"));
    return {dqkv, {}, {}, {}, {}, {}, {}};
  }
};

struct SiluMulFunction : torch::autograd::Function<SiluMulFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x) {
    ctx->save_for_backward({x});
    return compute::SiluMul(x);
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    return {compute::SiluMulBackward(grads[0].contiguous(), ctx->get_saved_variables()[0])};
  }
};

// Where no gradient is wanted, autograd's nodes would cost more than the smaller operations themselves.
bool WithGradients() {
  return c10::GradMode::is_enabled();
}

}  // namespace

at::Tensor Embedding(const at::Tensor& tokens, const Weight& weight) {
  if (!WithGradients()) return compute::Embedding(tokens, weight.value);
  return EmbeddingFunction::apply(weight.value, tokens, weight);
}

at::Tensor Linear(const at::Tensor& x, const Weight& weight, const Weight& bias) {
  if (!WithGradients()) return compute::Linear(x, weight, bias.value);
  return LinearFunction::apply(x, weight.value, weight, bias);
}

at::Tensor AddLinear(const at::Tensor& residual, const at::Tensor& x, const Weight& weight, const Weight& bias) {
  if (!WithGradients()) return compute::AddLinear_(residual, x, weight, bias.value);
  return AddLinearFunction::apply(residual, x, weight.value, weight, bias);
}

at::Tensor RmsNorm(const at::Tensor& x, const Weight& weight, double eps) {
  if (!WithGradients()) return compute::RmsNorm(x, weight.value, eps).first;
  return RmsNormFunction::apply(x, weight.value, weight, eps);
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> SplitNormRotate(const at::Tensor& qkv, const Weight& q_norm,
                                                               const Weight& k_norm, double eps, const at::Tensor& cos,
                                                               const at::Tensor& sin, const ModelConfig& config) {
  const compute::HeadShape shape{config.num_heads, config.num_kv_heads, config.head_dim};
  if (!WithGradients()) {
    compute::SplitHeads heads = compute::SplitNormRotate(qkv, q_norm.value, k_norm.value, eps, cos, sin, shape);
    return {heads.q, heads.k, heads.v};
  }
  const variable_list heads = SplitNormRotateFunction::apply(qkv, q_norm, k_norm, eps, cos, sin, shape);
  return {heads[0], heads[1], heads[2]};
}

at::Tensor SiluMul(const at::Tensor& x) {
  return WithGradients() ? SiluMulFunction::apply(x) : compute::SiluMul(x);
}

}  // namespace manta::model::ops
