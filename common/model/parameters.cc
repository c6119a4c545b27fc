#include "common/model/parameters.h"

#include <utility>

#include "common/base/check.h"
#include "common/base/random.h"
#include "common/base/status.h"
#include "common/base/strings.h"
#include "common/kernels/gemm.h"
#include "common/model/catch_aten.h"
#include "common/model/rotary.h"

namespace manta::model {
namespace {

// FNV-1a: the stream of a parameter's initial values is its name's.
uint64_t NameStream(std::string_view name) {
  uint64_t hash = 14695981039346656037u;
  for (unsigned char c : name) hash = (hash ^ c) * 1099511628211u;
  return hash;
}

bool EndsWith(std::string_view text, std::string_view end) {
  return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

}  // namespace

absl::StatusOr<Parameters> Parameters::Create(const ModelConfig& config, at::ScalarType dtype, at::Device device) {
  return CatchAten("allocating parameters", [&]() -> absl::StatusOr<Parameters> {
    Parameters parameters;
    parameters.state_ = std::make_shared<State>();
    State& state = *parameters.state_;
    state.config = config;
    state.table = ParameterTable(config);
    state.values = at::zeros({FlatSize(state.table)}, at::TensorOptions().dtype(dtype).device(device));
    state.rotary = std::make_shared<RotaryTable>(config);
    parameters.BuildWeights();
    return parameters;
  });
}

absl::StatusOr<Parameters> Parameters::Random(const ModelConfig& config, uint64_t seed, at::ScalarType dtype,
                                              at::Device device) {
  MANTA_ASSIGN_OR_RETURN(Parameters parameters, Create(config, dtype, device));
  return CatchAten("initialising parameters", [&]() -> absl::StatusOr<Parameters> {
    for (const ParameterSpec& spec : parameters.table()) {
      at::Tensor value = parameters.Value(spec.name);
      if (spec.shape.size() == 1) {
        value.fill_(EndsWith(spec.name, ".bias") ? 0.0 : 1.0);
        continue;
      }
      at::Tensor host = at::empty(spec.shape, at::kFloat);
      RandomStream random(seed, NameStream(spec.name));
      float* data = host.data_ptr<float>();
      for (int64_t i = 0; i < spec.numel; ++i) {
        data[i] = static_cast<float>(random.NextNormal() * config.initializer_range);
      }
      value.copy_(host);
    }
    return parameters;
  });
}

const ParameterSpec* Parameters::Find(std::string_view name) const {
  for (const ParameterSpec& spec : state_->table) {
    if (spec.name == name) return &spec;
  }
  return nullptr;
}

at::Tensor Parameters::View(const at::Tensor& flat, std::string_view name_or_group) const {
  if (!flat.defined()) return {};
  int64_t offset = -1, numel = 0, rows = 0;
  std::vector<int64_t> shape;
  for (const ParameterSpec& spec : state_->table) {
    if (spec.name != name_or_group && spec.group != name_or_group) continue;
    if (offset < 0) offset = spec.offset;
    MANTA_CHECK(spec.offset == offset + numel) << spec.name << " is not adjacent to its group";
    numel += spec.numel;
    rows += spec.shape[0];
    shape = spec.shape;
  }
  if (offset < 0) return {};
  shape[0] = rows;
  return flat.narrow(0, offset, numel).view(shape);
}

at::Tensor Parameters::Value(std::string_view name) const {
  const ParameterSpec* spec = Find(name);
  return spec == nullptr ? at::Tensor() : state_->values.narrow(0, spec->offset, spec->numel).view(spec->shape);
}

at::Tensor Parameters::Gradient(std::string_view name) const {
  const ParameterSpec* spec = Find(name);
  if (spec == nullptr || !state_->gradients.defined()) return {};
  return state_->gradients.narrow(0, spec->offset, spec->numel).view(spec->shape);
}

void Parameters::ForEach(absl::FunctionRef<void(const ParameterSpec&, const at::Tensor&)> visit) const {
  for (const ParameterSpec& spec : state_->table) {
    visit(spec, state_->values.narrow(0, spec.offset, spec.numel).view(spec.shape));
  }
}

Weight Parameters::MakeWeight(const std::string& name_or_group) const {
  Weight weight;
  weight.value = View(state_->values, name_or_group);
  if (!weight.defined()) return weight;
  // A leaf of its own, apart from the flat buffer's views: autograd must see no relation between parameters.
  weight.value = weight.value.detach();
  weight.grad = View(state_->gradients, name_or_group);
  if (weight.grad.defined()) weight.value.set_requires_grad(true);
  return weight;
}

void Parameters::BuildWeights() {
  State& state = *state_;
  ModelWeights weights;
  weights.embedding = MakeWeight("model.embed_tokens.weight");
  for (int64_t i = 0; i < state.config.num_layers; ++i) {
    const std::string layer = StrCat("model.layers.", i, "."), attention = layer + "self_attn.", mlp = layer + "mlp.";
    LayerWeights& w = weights.layers.emplace_back();
    w.input_norm = MakeWeight(layer + "input_layernorm.weight");
    w.qkv = MakeWeight(attention + "qkv_proj.weight");
    w.qkv_bias = MakeWeight(attention + "qkv_proj.bias");
    w.q_norm = MakeWeight(attention + "q_norm.weight");
    w.k_norm = MakeWeight(attention + "k_norm.weight");
    w.o = MakeWeight(attention + "o_proj.weight");
    w.o_bias = MakeWeight(attention + "o_proj.bias");
    w.post_attention_norm = MakeWeight(layer + "post_attention_layernorm.weight");
    w.gate_up = MakeWeight(mlp + "gate_up_proj.weight");
    w.gate_up_bias = MakeWeight(mlp + "gate_up_proj.bias");
    w.down = MakeWeight(mlp + "down_proj.weight");
    w.down_bias = MakeWeight(mlp + "down_proj.bias");
  }
  weights.norm = MakeWeight("model.norm.weight");
  weights.lm_head = state.config.tie_word_embeddings ? weights.embedding : MakeWeight("lm_head.weight");
  state.weights = std::move(weights);
}

void Parameters::EnableGradients() {
  if (state_->gradients.defined()) return;
  // float32 whatever the values' type is (float64 for float64, which tests use).
  const at::ScalarType type = dtype() == at::kDouble ? at::kDouble : at::kFloat;
  state_->gradients = at::zeros_like(state_->values, state_->values.options().dtype(type));
  BuildWeights();
  ValuesChanged();
}

void Parameters::ZeroGradients() {
  if (state_->gradients.defined()) state_->gradients.zero_();
}

void Parameters::PackForInference() {
  state_->pack = true;
  ValuesChanged();
}

void Parameters::ValuesChanged() {
  const bool pack = state_->pack && device().is_cpu() && dtype() == at::kFloat;
  const auto repack = [pack](Weight& weight) {
    weight.packed = nullptr;
    if (!pack || !weight.defined()) return;
    weight.packed = std::make_shared<kernels::PackedWeight>(weight.value.const_data_ptr<float>(), weight.value.size(0),
                                                            weight.value.size(1));
  };
  for (LayerWeights& layer : state_->weights.layers) {
    for (Weight* weight : {&layer.qkv, &layer.o, &layer.gate_up, &layer.down}) repack(*weight);
  }
  repack(state_->weights.lm_head);
}

}  // namespace manta::model
