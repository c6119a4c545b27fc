#include "common/model/parameter_table.h"

#include <utility>

#include "common/base/strings.h"

namespace manta::model {
namespace {

constexpr int64_t kAlign = 16;  // elements: 64 bytes in float32

class TableBuilder {
 public:
  void set_layer(int layer) { layer_ = layer; }
  void Add(std::string name, std::vector<int64_t> shape, int shard_dim, std::string group = "") {
    ParameterSpec spec;
    spec.name = std::move(name);
    spec.shape = std::move(shape);
    spec.shard_dim = shard_dim;
    spec.layer = layer_;
    spec.numel = 1;
    for (int64_t d : spec.shape) spec.numel *= d;
    const bool continues = !group.empty() && !table_.empty() && table_.back().group == group;
    if (!continues) end_ = (end_ + kAlign - 1) / kAlign * kAlign;
    spec.group = std::move(group);
    spec.offset = end_;
    end_ += spec.numel;
    table_.push_back(std::move(spec));
  }
  std::vector<ParameterSpec> Take() { return std::move(table_); }

 private:
  std::vector<ParameterSpec> table_;
  int layer_ = -1;
  int64_t end_ = 0;
};

}  // namespace

std::vector<ParameterSpec> ParameterTable(const ModelConfig& config) {
  const int64_t hidden = config.hidden_size, q = config.q_size(), kv = config.kv_size(), mlp = config.intermediate_size;
  TableBuilder table;
  table.Add("model.embed_tokens.weight", {config.vocab_size, hidden}, 0);
  for (int layer = 0; layer < config.num_layers; ++layer) {
    table.set_layer(layer);
    const std::string prefix = StrCat("model.layers.", layer, ".");
    const std::string attention = prefix + "self_attn.", mlp_prefix = prefix + "mlp.";
    const std::pair<const char*, int64_t> projections[] = {{"q_proj", q}, {"k_proj", kv}, {"v_proj", kv}};
    table.Add(prefix + "input_layernorm.weight", {hidden}, -1);
    for (auto [name, rows] : projections) {
      table.Add(StrCat(attention, name, ".weight"), {rows, hidden}, 0, attention + "qkv_proj.weight");
    }
    if (config.qkv_bias) {
      for (auto [name, rows] : projections) {
        table.Add(StrCat(attention, name, ".bias"), {rows}, 0, attention + "qkv_proj.bias");
      }
    }
    if (config.qk_norm) {
      table.Add(attention + "q_norm.weight", {config.head_dim}, -1);
      table.Add(attention + "k_norm.weight", {config.head_dim}, -1);
    }
    table.Add(attention + "o_proj.weight", {hidden, q}, 1);
    if (config.o_bias) table.Add(attention + "o_proj.bias", {hidden}, -1);
    table.Add(prefix + "post_attention_layernorm.weight", {hidden}, -1);
    for (const char* name : {"gate_proj", "up_proj"}) {
      table.Add(StrCat(mlp_prefix, name, ".weight"), {mlp, hidden}, 0, mlp_prefix + "gate_up_proj.weight");
    }
    if (config.mlp_bias) {
      for (const char* name : {"gate_proj", "up_proj"}) {
        table.Add(StrCat(mlp_prefix, name, ".bias"), {mlp}, 0, mlp_prefix + "gate_up_proj.bias");
      }
    }
    table.Add(mlp_prefix + "down_proj.weight", {hidden, mlp}, 1);
    if (config.mlp_bias) table.Add(mlp_prefix + "down_proj.bias", {hidden}, -1);
  }
  table.set_layer(-1);
  table.Add("model.norm.weight", {hidden}, -1);
  if (!config.tie_word_embeddings) table.Add("lm_head.weight", {config.vocab_size, hidden}, 0);
  return table.Take();
}

int64_t FlatSize(const std::vector<ParameterSpec>& table) {
  if (table.empty()) return 0;
  return (table.back().offset + table.back().numel + kAlign - 1) / kAlign * kAlign;
}

}  // namespace manta::model
