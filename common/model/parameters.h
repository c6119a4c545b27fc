// A model's parameters in memory: one flat buffer, laid out by the parameter table, of which every parameter is a view
// under its Hugging Face name. q, k, v and gate, up lie next to each other, so that the fused matrix is a view too.
//
// Gradients, where enabled, lie in a second flat buffer of float32 with the same offsets: backward adds into it, an
// optimiser or a collective works on the flat buffers (or contiguous ranges of them) without gathering anything.
//
// Copies share the buffers. Reading is thread-safe; whoever changes values (optimiser step, weight sync) does so while
// no forward runs, and then calls ValuesChanged(), since kernels may keep a packed copy of a matrix. Errors are
// INVALID_ARGUMENT and name file and tensor.
#pragma once

#include <ATen/ATen.h>

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "common/model/config.h"
#include "common/model/parameter_table.h"

namespace manta::kernels {
class PackedWeight;
}

namespace manta::model {

class RotaryTable;

// A tensor that the forward uses, with where its gradient goes and, for matrices on the CPU, a packed copy.
struct Weight {
  at::Tensor value;                                     // undefined: the model has no such parameter
  at::Tensor grad;                                      // float32, same shape; undefined unless gradients are enabled
  std::shared_ptr<const kernels::PackedWeight> packed;  // of `value`; null unless PackForInference was called
  bool defined() const { return value.defined(); }
};

struct LayerWeights {
  Weight input_norm;             // [hidden]
  Weight qkv, qkv_bias;          // [q + 2 kv, hidden], [q + 2 kv]
  Weight q_norm, k_norm;         // [head_dim]
  Weight o, o_bias;              // [hidden, q], [hidden]
  Weight post_attention_norm;    // [hidden]
  Weight gate_up, gate_up_bias;  // [2 intermediate, hidden], [2 intermediate]
  Weight down, down_bias;        // [hidden, intermediate], [hidden]
};

struct ModelWeights {
  Weight embedding;  // [vocab, hidden]
  std::vector<LayerWeights> layers;
  Weight norm;     // [hidden]
  Weight lm_head;  // [vocab, hidden]; the embedding where tied
};

class Parameters {
 public:
  // Zeros.
  [[nodiscard]] static absl::StatusOr<Parameters> Create(const ModelConfig& config, at::ScalarType dtype,
                                                         at::Device device = at::kCPU);
  // From a folder (or a .safetensors file), converted to `dtype`. Every parameter must be there with its shape; tensors
  // that the table does not have are errors but for tied copies, rotary buffers and what old files carry beside
  // weights.
  [[nodiscard]] static absl::StatusOr<Parameters> Load(const ModelConfig& config, const std::filesystem::path& path,
                                                       at::ScalarType dtype, at::Device device = at::kCPU);
  // Normal(0, initializer_range) for matrices, ones for norms, zeros for biases: a pure function of seed and name.
  [[nodiscard]] static absl::StatusOr<Parameters> Random(const ModelConfig& config, uint64_t seed, at::ScalarType dtype,
                                                         at::Device device = at::kCPU);

  const ModelConfig& config() const { return state_->config; }
  const std::vector<ParameterSpec>& table() const { return state_->table; }
  const ModelWeights& weights() const { return state_->weights; }
  at::ScalarType dtype() const { return state_->values.scalar_type(); }
  at::Device device() const { return state_->values.device(); }

  // [FlatSize(table)] of dtype(): all values, gaps zero. Writing through it needs ValuesChanged() afterwards.
  const at::Tensor& flat_values() const { return state_->values; }
  // The same in float32; undefined before EnableGradients().
  const at::Tensor& flat_gradients() const { return state_->gradients; }

  // A view by Hugging Face name; undefined where there is no such parameter.
  at::Tensor Value(std::string_view name) const;
  at::Tensor Gradient(std::string_view name) const;
  void ForEach(absl::FunctionRef<void(const ParameterSpec&, const at::Tensor& value)> visit) const;

  // From here on Forward under GradMode records a graph and backward() adds to the gradients. Values are leaves of the
  // graph.
  void EnableGradients();
  void ZeroGradients();

  // Packs the matrices for the CPU kernels: faster forward of few rows, twice the memory. Results do not change by a
  // bit. Nothing happens for other devices and types.
  void PackForInference();
  // Values have changed in place: packed copies are made anew.
  void ValuesChanged();

  // config.json and model.safetensors (or shards) into an existing folder, in `dtype`.
  [[nodiscard]] absl::Status Save(const std::filesystem::path& folder, at::ScalarType dtype,
                                  uint64_t max_shard_bytes = uint64_t{5'000'000'000}) const;

  // cos and sin of the rotation; grows as positions ask for it. Internal to Forward.
  RotaryTable& rotary() const { return *state_->rotary; }

 private:
  struct State {
    ModelConfig config;
    std::vector<ParameterSpec> table;
    at::Tensor values, gradients;
    ModelWeights weights;
    std::shared_ptr<RotaryTable> rotary;
    bool pack = false;
  };
  const ParameterSpec* Find(std::string_view name) const;
  // [rows, ...] view of `flat` over a spec, or over all of its group.
  at::Tensor View(const at::Tensor& flat, std::string_view name_or_group) const;
  Weight MakeWeight(const std::string& name_or_group) const;
  void BuildWeights();

  std::shared_ptr<State> state_;
};

}  // namespace manta::model
