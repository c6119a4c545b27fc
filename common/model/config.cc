#include "common/model/config.h"

#include <cmath>

#include "absl/status/status.h"
#include "common/base/file.h"
#include "common/base/status.h"
#include "common/base/strings.h"
#include "common/model/config_reader.h"

namespace manta::model {
namespace {

using Json = nlohmann::ordered_json;

struct KnownArchitecture {
  const char* name;
  const char* model_type;
  Architecture architecture;
};
constexpr KnownArchitecture kKnown[] = {
    {"LlamaForCausalLM", "llama", Architecture::kLlama},
    {"Qwen2ForCausalLM", "qwen2", Architecture::kQwen2},
    {"Qwen3ForCausalLM", "qwen3", Architecture::kQwen3},
    {"MistralForCausalLM", "mistral", Architecture::kMistral},
};

absl::StatusOr<Architecture> ReadArchitecture(const Json& json, std::string_view file) {
  std::string name;
  if (auto it = json.find("architectures"); it != json.end() && !it->is_null()) {
    if (!it->is_array() || it->empty() || !it->front().is_string()) {
      return UserError(StrCat(file, ": architectures: expected a list with one name, got ", Shorten(*it)));
    }
    name = it->front().get<std::string>();
    for (const auto& known : kKnown) {
      if (name == known.name) return known.architecture;
    }
  } else if (auto type = json.find("model_type"); type != json.end() && type->is_string()) {
    name = type->get<std::string>();
    for (const auto& known : kKnown) {
      if (name == known.model_type) return known.architecture;
    }
  } else {
    return UserError(StrCat(file, ": architectures: expected a list with one name, found neither it nor model_type"));
  }
  return absl::UnimplementedError(
      StrCat(file, ": architecture \"", name, "\" is not known; known are ", KnownArchitectures()));
}

RopeConfig ReadRope(ConfigReader& reader, const ModelConfig& config) {
  RopeConfig rope;
  rope.theta = reader.Number("rope_theta", 10000, ConfigReader::kPositive);
  // transformers 5 writes rope_parameters with the theta in it, 4 rope_scaling beside rope_theta.
  const char* section = reader.HasObject("rope_scaling") ? "rope_scaling" : "rope_parameters";
  if (!reader.HasObject(section)) return rope;
  ConfigReader scaling = reader.Object(section);
  rope.theta = scaling.Number("rope_theta", rope.theta, ConfigReader::kPositive);
  const std::string type = scaling.Text("rope_type", scaling.Text("type", "default"));
  if (type == "default") {
    rope.type = RopeConfig::Type::kDefault;
  } else if (type == "linear") {
    rope.type = RopeConfig::Type::kLinear;
  } else if (type == "dynamic") {
    rope.type = RopeConfig::Type::kDynamic;
  } else if (type == "yarn") {
    rope.type = RopeConfig::Type::kYarn;
  } else if (type == "llama3") {
    rope.type = RopeConfig::Type::kLlama3;
  } else {
    scaling.Fail("rope_type", "expected default, linear, dynamic, yarn or llama3", type);
  }
  if (scaling.Number("partial_rotary_factor", 1, ConfigReader::kPositive) != 1) {
    scaling.Fail("partial_rotary_factor", "expected 1: other values are not implemented", "");
  }
  if (rope.type != RopeConfig::Type::kDefault) rope.factor = scaling.RequiredNumber("factor", ConfigReader::kPositive);
  if (rope.type == RopeConfig::Type::kYarn || rope.type == RopeConfig::Type::kLlama3) {
    const int64_t original = reader.Integer("original_max_position_embeddings", config.max_position_embeddings, 1);
    rope.original_max_position_embeddings = scaling.Integer("original_max_position_embeddings", original, 1);
  }
  if (rope.type == RopeConfig::Type::kLlama3) {
    rope.low_freq_factor = scaling.RequiredNumber("low_freq_factor", ConfigReader::kPositive);
    rope.high_freq_factor = scaling.RequiredNumber("high_freq_factor", ConfigReader::kPositive);
    if (rope.high_freq_factor <= rope.low_freq_factor) {
      scaling.Fail("high_freq_factor", "expected more than low_freq_factor", StrCat(rope.high_freq_factor));
    }
  }
  if (rope.type == RopeConfig::Type::kYarn) {
    if (scaling.Has("attention_factor")) {
      rope.attention_factor = scaling.RequiredNumber("attention_factor", ConfigReader::kPositive);
    }
    rope.beta_fast = scaling.Number("beta_fast", 32, ConfigReader::kPositive);
    rope.beta_slow = scaling.Number("beta_slow", 1, ConfigReader::kPositive);
    rope.mscale = scaling.Number("mscale", 0, ConfigReader::kNotNegative);
    rope.mscale_all_dim = scaling.Number("mscale_all_dim", 0, ConfigReader::kNotNegative);
    rope.truncate = scaling.Bool("truncate", true);
  }
  reader.Adopt(scaling);
  return rope;
}

std::vector<int64_t> ReadWindows(ConfigReader& reader, const ModelConfig& config) {
  std::vector<int64_t> windows(static_cast<size_t>(config.num_layers), 0);
  switch (config.architecture) {
    case Architecture::kLlama:
      break;
    case Architecture::kMistral: {
      // Absent means the class's own default in transformers, null means full attention.
      const int64_t window = reader.IsNull("sliding_window") ? 0 : reader.Integer("sliding_window", 4096, 1);
      for (int64_t& layer : windows) layer = window;
      break;
    }
    case Architecture::kQwen2:
    case Architecture::kQwen3: {
      const bool use = reader.Bool("use_sliding_window", false);
      const int64_t window = use && !reader.IsNull("sliding_window") ? reader.Integer("sliding_window", 4096, 1) : 0;
      const std::vector<std::string> types = reader.TextList("layer_types");
      if (types.empty()) {
        const int64_t first = reader.Integer("max_window_layers", 28, 0);
        for (size_t i = 0; i < windows.size(); ++i) windows[i] = static_cast<int64_t>(i) >= first ? window : 0;
        break;
      }
      if (types.size() != windows.size()) {
        reader.Fail("layer_types", StrCat("expected ", windows.size(), " entries (num_hidden_layers)"),
                    StrCat(types.size()));
        break;
      }
      for (size_t i = 0; i < windows.size(); ++i) {
        if (types[i] == "sliding_attention") {
          if (window == 0) reader.Fail("layer_types", "expected use_sliding_window and sliding_window for", types[i]);
          windows[i] = window;
        } else if (types[i] != "full_attention") {
          reader.Fail("layer_types", "expected full_attention or sliding_attention", types[i]);
        }
      }
      break;
    }
  }
  return windows;
}

void ReadBiases(ConfigReader& reader, ModelConfig& config) {
  switch (config.architecture) {
    case Architecture::kLlama:
      config.qkv_bias = config.o_bias = reader.Bool("attention_bias", false);
      config.mlp_bias = reader.Bool("mlp_bias", false);
      break;
    case Architecture::kQwen2:
      config.qkv_bias = true;  // although no key says so
      break;
    case Architecture::kQwen3:
      config.qkv_bias = config.o_bias = reader.Bool("attention_bias", false);
      config.qk_norm = true;
      break;
    case Architecture::kMistral:
      break;
  }
}

void ReadHeads(ConfigReader& reader, ModelConfig& config) {
  config.num_heads = reader.RequiredInteger("num_attention_heads", 1);
  config.num_kv_heads = reader.Integer("num_key_value_heads", config.num_heads, 1);
  if (!reader.ok()) return;
  if (config.num_heads % config.num_kv_heads != 0) {
    reader.Fail("num_key_value_heads", StrCat("expected a divisor of num_attention_heads (", config.num_heads, ")"),
                StrCat(config.num_kv_heads));
    return;
  }
  const bool absent = !reader.Has("head_dim");
  if (absent && config.architecture == Architecture::kQwen3 && !reader.IsNull("head_dim")) {
    config.head_dim = 128;  // Qwen3's default whatever hidden/heads is
  } else if (absent) {
    if (config.hidden_size % config.num_heads != 0) {
      reader.Fail("num_attention_heads", StrCat("expected a divisor of hidden_size (", config.hidden_size, ")"),
                  StrCat(config.num_heads));
      return;
    }
    config.head_dim = config.hidden_size / config.num_heads;
  } else {
    config.head_dim = reader.Integer("head_dim", 0, 1);
  }
  if (config.head_dim % 2 != 0) {
    reader.Fail("head_dim", "expected an even number (the rotation pairs elements)", StrCat(config.head_dim));
  }
}

}  // namespace

double ModelConfig::attention_scale() const {
  return 1.0 / std::sqrt(static_cast<double>(head_dim));
}

std::string KnownArchitectures() {
  std::string names;
  for (const auto& known : kKnown) names += StrCat(names.empty() ? "" : ", ", known.name);
  return names;
}

absl::StatusOr<ModelConfig> ParseModelConfig(std::string_view text, std::string_view file) {
  ModelConfig config;
  try {
    config.json = Json::parse(text);
  } catch (const nlohmann::json::exception& error) {
    return UserError(StrCat(file, ": not JSON: ", error.what()));
  }
  if (!config.json.is_object()) return UserError(StrCat(file, ": expected a JSON object"));
  MANTA_ASSIGN_OR_RETURN(config.architecture, ReadArchitecture(config.json, file));
  if (auto it = config.json.find("quantization_config"); it != config.json.end() && !it->is_null()) {
    return absl::UnimplementedError(StrCat(file, ": quantization_config: quantised weights are not implemented"));
  }

  ConfigReader reader(config.json, std::string(file));
  config.vocab_size = reader.RequiredInteger("vocab_size", 1);
  config.hidden_size = reader.RequiredInteger("hidden_size", 1);
  config.intermediate_size = reader.RequiredInteger("intermediate_size", 1);
  config.num_layers = reader.RequiredInteger("num_hidden_layers", 1);
  ReadHeads(reader, config);
  config.max_position_embeddings = reader.Integer("max_position_embeddings", 2048, 1);
  config.rms_norm_eps = reader.Number("rms_norm_eps", 1e-6, ConfigReader::kNotNegative);
  config.initializer_range = reader.Number("initializer_range", 0.02, ConfigReader::kNotNegative);
  config.tie_word_embeddings = reader.Bool("tie_word_embeddings", false);
  const std::string act = reader.Text("hidden_act", "silu");
  if (act != "silu" && act != "swish") reader.Fail("hidden_act", "expected silu", act);
  if (reader.Number("partial_rotary_factor", 1, ConfigReader::kPositive) != 1) {
    reader.Fail("partial_rotary_factor", "expected 1: other values are not implemented", "");
  }
  ReadBiases(reader, config);
  config.dtype = reader.Text("dtype", reader.Text("torch_dtype", "float32"));
  if (config.dtype != "float32" && config.dtype != "bfloat16" && config.dtype != "float16") {
    reader.Fail(reader.Has("dtype") ? "dtype" : "torch_dtype", "expected float32, bfloat16 or float16", config.dtype);
  }
  config.eos_token_ids = reader.IntegerOrList("eos_token_id");
  if (reader.Has("bos_token_id")) {
    if (auto ids = reader.IntegerOrList("bos_token_id"); !ids.empty()) config.bos_token_id = ids.front();
  }
  if (reader.Has("pad_token_id")) config.pad_token_id = reader.Integer("pad_token_id", 0, -1);
  // Sizes are multiplied below and elsewhere: bounds keep those products far from overflow.
  reader.AtMost("num_hidden_layers", config.num_layers, 10'000);
  for (auto [key, value] : {std::pair{"vocab_size", config.vocab_size},
                            {"hidden_size", config.hidden_size},
                            {"intermediate_size", config.intermediate_size},
                            {"num_attention_heads", config.num_heads},
                            {"head_dim", config.head_dim}}) {
    reader.AtMost(key, value, int64_t{1} << 24);
  }
  if (reader.ok()) {
    config.layer_window = ReadWindows(reader, config);
    config.rope = ReadRope(reader, config);
  }
  MANTA_RETURN_IF_ERROR(reader.status());
  return config;
}

absl::StatusOr<ModelConfig> LoadModelConfig(const std::filesystem::path& path) {
  std::error_code error;
  const std::filesystem::path file = std::filesystem::is_directory(path, error) ? path / "config.json" : path;
  MANTA_ASSIGN_OR_RETURN(const std::string text, ReadFile(file, 16 << 20));
  return ParseModelConfig(text, file.string());
}

std::string ModelConfigText(const ModelConfig& config, std::string_view dtype) {
  Json json = config.json;
  if (!dtype.empty()) {
    const char* key = json.contains("torch_dtype") && !json.contains("dtype") ? "torch_dtype" : "dtype";
    json[key] = dtype;
  }
  return json.dump(2) + "\n";
}

}  // namespace manta::model
