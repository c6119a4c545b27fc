// What Manta knows of a model's config.json: the architectures it can compute and every number their formulas need.
//
// Both spellings of Hugging Face are read: transformers 4 (`rope_theta` + `rope_scaling`, `torch_dtype`) and 5
// (`rope_parameters`, `dtype`, `layer_types`). The whole JSON object is kept in order, so that writing a config back
// loses no key that Manta does not know. A ModelConfig is a value; the functions are thread-safe and free of LibTorch.
// An unknown architecture is UNIMPLEMENTED and the message lists the known ones; a bad field is INVALID_ARGUMENT and
// the message names file, field and what was expected.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"

namespace manta::model {

enum class Architecture { kLlama, kQwen2, kQwen3, kMistral };

// Rotary position embedding. `factor` and what follows it mean something only for the types that name them.
struct RopeConfig {
  enum class Type { kDefault, kLinear, kDynamic, kYarn, kLlama3 };
  Type type = Type::kDefault;
  double theta = 10000;
  double factor = 1;                             // all but default
  int64_t original_max_position_embeddings = 0;  // yarn, llama3
  double low_freq_factor = 0;                    // llama3
  double high_freq_factor = 0;                   // llama3
  std::optional<double> attention_factor;        // yarn: multiplies cos and sin; derived where absent
  double beta_fast = 32;                         // yarn
  double beta_slow = 1;                          // yarn
  double mscale = 0;                             // yarn, 0: absent
  double mscale_all_dim = 0;                     // yarn, 0: absent
  bool truncate = true;                          // yarn
};

struct ModelConfig {
  Architecture architecture = Architecture::kLlama;
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  int64_t num_layers = 0;
  int64_t num_heads = 0;
  int64_t num_kv_heads = 0;
  int64_t head_dim = 0;
  int64_t max_position_embeddings = 0;
  double rms_norm_eps = 1e-6;
  double initializer_range = 0.02;
  bool tie_word_embeddings = false;
  bool qkv_bias = false;
  bool o_bias = false;
  bool mlp_bias = false;
  bool qk_norm = false;  // RMSNorm of each query and key head before the rotation (Qwen3)
  RopeConfig rope;
  std::vector<int64_t> layer_window;   // [num_layers] sliding window; 0: full attention
  std::string dtype = "float32";       // of the stored weights: float32, bfloat16 or float16
  std::vector<int64_t> eos_token_ids;  // empty where the config has none
  std::optional<int64_t> bos_token_id;
  std::optional<int64_t> pad_token_id;

  nlohmann::ordered_json json;  // what was read, every key

  int64_t q_size() const { return num_heads * head_dim; }
  int64_t kv_size() const { return num_kv_heads * head_dim; }
  double attention_scale() const;  // head_dim ** -0.5
};

// `file` is named in errors.
[[nodiscard]] absl::StatusOr<ModelConfig> ParseModelConfig(std::string_view text, std::string_view file);

// Reads `path`: a config.json, or a folder that holds one.
[[nodiscard]] absl::StatusOr<ModelConfig> LoadModelConfig(const std::filesystem::path& path);

// The text of config.json: what was read, with the type of the stored weights set to `dtype` where that is not empty,
// under the spelling (`dtype` or `torch_dtype`) that was read.
std::string ModelConfigText(const ModelConfig& config, std::string_view dtype = "");

// "LlamaForCausalLM, Qwen2ForCausalLM, ..."
std::string KnownArchitectures();

}  // namespace manta::model
