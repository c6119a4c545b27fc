#include "common/model/layer.h"

#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <utility>

#include "common/model/ops.h"

namespace manta::model {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// What backward needs to run a layer again, beside the tensors.
struct LayerCall : torch::CustomClassHolder {
  LayerCall(Parameters p, int i, std::shared_ptr<AttentionBackend> a)
      : parameters(std::move(p)), index(i), attention(std::move(a)) {}
  at::Tensor Run(const at::Tensor& x, const RotaryTable::Rows& rotary) const {
    return Layer(parameters.config(), parameters.weights().layers[static_cast<size_t>(index)], index, x, rotary,
                 *attention);
  }

  const Parameters parameters;  // a handle: the same weights
  const int index;
  const std::shared_ptr<AttentionBackend> attention;
};

struct RecomputedLayerFunction : torch::autograd::Function<RecomputedLayerFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin,
                            const c10::intrusive_ptr<LayerCall>& call) {
    ctx->save_for_backward({x, cos, sin});
    ctx->saved_data["call"] = c10::IValue::make_capsule(call);
    return call->Run(x.clone(), {cos, sin});  // a copy: without gradients the layer writes over its input
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const variable_list saved = ctx->get_saved_variables();
    const auto call = c10::static_intrusive_pointer_cast<LayerCall>(ctx->saved_data["call"].toCapsule());
    const at::Tensor x = saved[0].detach().requires_grad_(true);
    {
      const c10::AutoGradMode with_gradients(true);
      call->Run(x, {saved[1], saved[2]}).backward(grads[0]);
    }
    return {x.grad(), at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

}  // namespace

at::Tensor Layer(const ModelConfig& config, const LayerWeights& w, int index, const at::Tensor& x,
                 const RotaryTable::Rows& rotary, AttentionBackend& attention) {
  const at::Tensor normed = ops::RmsNorm(x, w.input_norm, config.rms_norm_eps);
  const at::Tensor qkv = ops::Linear(normed, w.qkv, w.qkv_bias);
  const auto [q, k, v] =
      ops::SplitNormRotate(qkv, w.q_norm, w.k_norm, config.rms_norm_eps, rotary.cos, rotary.sin, config);
  const AttentionSpec spec{index, config.attention_scale(), config.layer_window[static_cast<size_t>(index)]};
  const at::Tensor mixed = attention.Attend(spec, q, k, v).view({x.size(0), config.q_size()});
  const at::Tensor h = ops::AddLinear(x, mixed, w.o, w.o_bias);
  const at::Tensor gate_up =
      ops::Linear(ops::RmsNorm(h, w.post_attention_norm, config.rms_norm_eps), w.gate_up, w.gate_up_bias);
  return ops::AddLinear(h, ops::SiluMul(gate_up), w.down, w.down_bias);
}

at::Tensor RecomputedLayer(const Parameters& parameters, int index, const at::Tensor& x,
                           const RotaryTable::Rows& rotary, std::shared_ptr<AttentionBackend> attention) {
  return RecomputedLayerFunction::apply(
      x, rotary.cos, rotary.sin, c10::make_intrusive<LayerCall>(parameters, index, std::move(attention)));
}

}  // namespace manta::model
