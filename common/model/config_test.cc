// Configs in both spellings, and the one error of each broken one.
#include "common/model/config.h"

#include <filesystem>

#include "common/model/config_overrides.h"
#include "common/model/parameter_table.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/shared_data.h"

namespace manta::model {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Json = nlohmann::ordered_json;

Json Base(const std::string& architecture) {
  return {{"architectures", {architecture}}, {"vocab_size", 50},       {"hidden_size", 16},
          {"intermediate_size", 24},         {"num_hidden_layers", 2}, {"num_attention_heads", 4},
          {"num_key_value_heads", 2},        {"rms_norm_eps", 1e-5}};
}

ModelConfig Parse(const Json& json) {
  auto config = ParseModelConfig(json.dump(), "config.json");
  EXPECT_TRUE(config.ok()) << config.status();
  return config.ok() ? *config : ModelConfig();
}

std::string ErrorOf(const Json& json) {
  const auto config = ParseModelConfig(json.dump(), "config.json");
  return config.ok() ? "" : std::string(config.status().message());
}

TEST(ModelConfigTest, OverridesReplaceFieldsAndNullTakesThemAway) {
  Json json = Base("LlamaForCausalLM");
  json["rope_theta"] = 500;
  const auto with = [&](std::string_view overrides) {
    return ParseModelConfigWith(json.dump(), overrides, "config.json");
  };
  EXPECT_EQ(with("")->rope.theta, 500);
  EXPECT_EQ(with(R"({"rope_theta": 70})")->rope.theta, 70);
  EXPECT_EQ(with(R"({"rope_theta": null})")->rope.theta, 10000);
  EXPECT_THAT(std::string(with("[1]").status().message()), HasSubstr("config.json: policy.hf_config_overrides"));
  EXPECT_THAT(std::string(with(R"({"vocab_size": -1})").status().message()),
              HasSubstr("config.json with policy.hf_config_overrides"));
}

TEST(ModelConfigTest, Defaults) {
  const ModelConfig c = Parse(Base("LlamaForCausalLM"));
  EXPECT_EQ(c.head_dim, 4);
  EXPECT_EQ(c.rope.theta, 10000);
  EXPECT_FALSE(c.qkv_bias);
  EXPECT_THAT(c.layer_window, ElementsAre(0, 0));
  EXPECT_EQ(Parse(Base("Qwen3ForCausalLM")).head_dim, 128);
  EXPECT_TRUE(Parse(Base("Qwen3ForCausalLM")).qk_norm);
  EXPECT_TRUE(Parse(Base("Qwen2ForCausalLM")).qkv_bias);
  EXPECT_FALSE(Parse(Base("Qwen2ForCausalLM")).o_bias);
  EXPECT_THAT(Parse(Base("MistralForCausalLM")).layer_window, ElementsAre(4096, 4096));
  Json by_type = Base("x");
  by_type.erase("architectures");
  by_type["model_type"] = "qwen3";
  EXPECT_EQ(Parse(by_type).architecture, Architecture::kQwen3);
}

TEST(ModelConfigTest, BothSpellingsOfRotation) {
  Json v4 = Base("LlamaForCausalLM"), v5 = v4;
  const Json scaling = {
      {"factor", 8.0}, {"low_freq_factor", 1.0}, {"high_freq_factor", 4.0}, {"original_max_position_embeddings", 64}};
  v4["rope_theta"] = 5e5;
  v4["rope_scaling"] = scaling;
  v4["rope_scaling"]["type"] = "llama3";
  v5["rope_parameters"] = scaling;
  v5["rope_parameters"]["rope_type"] = "llama3";
  v5["rope_parameters"]["rope_theta"] = 5e5;
  for (const Json& json : {v4, v5}) {
    const ModelConfig c = Parse(json);
    EXPECT_EQ(c.rope.type, RopeConfig::Type::kLlama3);
    EXPECT_EQ(c.rope.theta, 5e5);
    EXPECT_EQ(c.rope.factor, 8);
    EXPECT_EQ(c.rope.original_max_position_embeddings, 64);
  }
}

TEST(ModelConfigTest, Windows) {
  Json json = Base("Qwen2ForCausalLM");
  json["sliding_window"] = 8;
  json["max_window_layers"] = 1;
  EXPECT_THAT(Parse(json).layer_window, ElementsAre(0, 0));  // not used unless it says so
  json["use_sliding_window"] = true;
  EXPECT_THAT(Parse(json).layer_window, ElementsAre(0, 8));
  json["layer_types"] = {"sliding_attention", "full_attention"};
  EXPECT_THAT(Parse(json).layer_window, ElementsAre(8, 0));
  Json mistral = Base("MistralForCausalLM");
  mistral["sliding_window"] = nullptr;
  EXPECT_THAT(Parse(mistral).layer_window, ElementsAre(0, 0));
}

TEST(ModelConfigTest, KeepsWhatItDoesNotKnow) {
  const std::string text =
      R"({"zeta": [1, 2.5e-07], "architectures": ["LlamaForCausalLM"], "vocab_size": 50, "hidden_size": 16,
    "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4, "alpha": {"b": null, "a": true},
    "torch_dtype": "bfloat16", "eos_token_id": [1, 2]})";
  const auto config = ParseModelConfig(text, "config.json");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->dtype, "bfloat16");
  EXPECT_THAT(config->eos_token_ids, ElementsAre(1, 2));
  EXPECT_EQ(config->num_kv_heads, 4);
  EXPECT_EQ(Json::parse(ModelConfigText(*config)).dump(), Json::parse(text).dump());
  Json changed = Json::parse(text);
  changed["torch_dtype"] = "float32";
  EXPECT_EQ(Json::parse(ModelConfigText(*config, "float32")).dump(), changed.dump());
}

TEST(ModelConfigTest, UnknownArchitecture) {
  const auto config = ParseModelConfig(Base("FooForCausalLM").dump(), "config.json");
  EXPECT_TRUE(absl::IsUnimplemented(config.status()));
  EXPECT_THAT(std::string(config.status().message()),
              HasSubstr("config.json: architecture \"FooForCausalLM\" is not known; known are LlamaForCausalLM"));
}

TEST(ModelConfigTest, OneErrorForABadField) {
  const auto with = [](const char* key, Json value) {
    Json json = Base("LlamaForCausalLM");
    json[key] = std::move(value);
    return json;
  };
  Json absent = Base("LlamaForCausalLM");
  absent.erase("hidden_size");
  const std::pair<Json, const char*> cases[] = {
      {absent, "config.json: hidden_size: expected an integer of at least 1, it is absent"},
      {with("vocab_size", "many"), "vocab_size: expected an integer of at least 1, got \"many\""},
      {with("vocab_size", 0), "vocab_size: expected an integer of at least 1, got 0"},
      {with("vocab_size", 1e3), "vocab_size: expected an integer"},
      {with("num_hidden_layers", 100000000), "num_hidden_layers: expected at most 10000"},
      {with("num_key_value_heads", 3), "num_key_value_heads: expected a divisor of num_attention_heads (4), got 3"},
      {with("num_attention_heads", 6), "expected a divisor of hidden_size (16), got 6"},
      {with("head_dim", 5), "head_dim: expected an even number"},
      {with("hidden_act", "gelu"), "hidden_act: expected silu, got gelu"},
      {with("rms_norm_eps", -1), "rms_norm_eps: expected a number of at least 0, got -1"},
      {with("tie_word_embeddings", 1), "tie_word_embeddings: expected true or false, got 1"},
      {with("torch_dtype", "int8"), "torch_dtype: expected float32, bfloat16 or float16, got int8"},
      {with("rope_scaling", 3), "rope_scaling: expected an object, got 3"},
      {with("rope_scaling", {{"type", "spiral"}}),
       "rope_scaling.rope_type: expected default, linear, dynamic, yarn or llama3, got spiral"},
      {with("rope_scaling", {{"type", "linear"}}), "rope_scaling.factor: expected a number, it is absent"},
      {with("rope_theta", "x"), "rope_theta: expected a number above 0, got \"x\""},
      {with("eos_token_id", "x"), "eos_token_id: expected an integer or a list of integers"},
      {with("architectures", "x"), "architectures: expected a list with one name"},
      {with("quantization_config", Json::object()), "quantization_config: quantised weights are not implemented"},
  };
  for (const auto& [json, message] : cases) EXPECT_THAT(ErrorOf(json), HasSubstr(message));
  EXPECT_THAT(std::string(ParseModelConfig("{", "config.json").status().message()), HasSubstr("config.json: not JSON"));
  EXPECT_THAT(std::string(ParseModelConfig("[]", "config.json").status().message()),
              HasSubstr("expected a JSON object"));
}

TEST(ParameterTableTest, GroupsAreAdjacent) {
  const ModelConfig c = Parse(Base("Qwen2ForCausalLM"));
  const std::vector<ParameterSpec> table = ParameterTable(c);
  for (size_t i = 1; i < table.size(); ++i) {
    const int64_t end = table[i - 1].offset + table[i - 1].numel;
    const bool same = !table[i].group.empty() && table[i].group == table[i - 1].group;
    EXPECT_EQ(table[i].offset, same ? end : (end + 15) / 16 * 16) << table[i].name;
  }
  EXPECT_EQ(table.front().name, "model.embed_tokens.weight");
  EXPECT_EQ(table.back().name, "lm_head.weight");
  Json tied = Base("LlamaForCausalLM");
  tied["tie_word_embeddings"] = true;
  EXPECT_EQ(ParameterTable(Parse(tied)).back().name, "model.norm.weight");
}

TEST(ModelConfigTest, SharedConfigs) {
  MANTA_NEED_SHARED("goldens/models");
  for (const char* model : {"llama", "llama_rope3", "qwen2", "qwen3", "qwen3_bf16", "qwen3_yarn", "mistral"}) {
    const std::filesystem::path folder = testing::SharedDir() / "goldens/models" / model;
    const auto v5 = LoadModelConfig(folder), v4 = LoadModelConfig(folder / "config.v4.json");
    ASSERT_TRUE(v5.ok()) << v5.status();
    ASSERT_TRUE(v4.ok()) << v4.status();
    EXPECT_EQ(v4->head_dim, v5->head_dim);
    EXPECT_EQ(v4->layer_window, v5->layer_window);
    EXPECT_EQ(v4->rope.type, v5->rope.type);
    EXPECT_EQ(v4->rope.theta, v5->rope.theta);
    EXPECT_EQ(v4->dtype, v5->dtype);
  }
}

}  // namespace
}  // namespace manta::model
