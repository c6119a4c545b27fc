// The model as trainer and generator use it: packing, microbatches, chunks and packed weights change nothing; gradients
// and filters agree with ATen's own in float64; checkpoints are read back.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <cmath>
#include <filesystem>

#include "common/checkpoint/writer.h"
#include "common/model/forward.h"
#include "common/model/log_prob.h"
#include "common/model/packed_attention.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace manta::model {
namespace {

using ::testing::HasSubstr;

ModelConfig Config(const std::string& architecture, bool tied = false) {
  const nlohmann::ordered_json json = {
      {"architectures", {architecture}}, {"vocab_size", 61},       {"hidden_size", 24},
      {"intermediate_size", 40},         {"num_hidden_layers", 2}, {"num_attention_heads", 4},
      {"num_key_value_heads", 2},        {"head_dim", 10},         {"tie_word_embeddings", tied},
      {"attention_bias", true},          {"mlp_bias", true},       {"sliding_window", 7},
      {"initializer_range", 0.3}};
  auto config = ParseModelConfig(json.dump(), "config.json");
  EXPECT_TRUE(config.ok()) << config.status();
  return *config;
}

Parameters Make(const ModelConfig& config, at::ScalarType dtype = at::kFloat) {
  auto parameters = Parameters::Random(config, 1, dtype);
  EXPECT_TRUE(parameters.ok()) << parameters.status();
  // Biases and norms away from 0 and 1, the same in every type.
  int i = 0;
  parameters->ForEach([&](const ParameterSpec& spec, const at::Tensor& value) {
    ++i;
    if (spec.shape.size() == 1) value.add_(at::arange(spec.numel).mul(0.7 * i).sin().mul(0.3).to(dtype));
  });
  return *parameters;
}

struct Batch {
  std::vector<std::vector<int64_t>> sequences;
  std::vector<int64_t> tokens, cu = {0}, rows, targets;
  explicit Batch(std::vector<std::vector<int64_t>> s) : sequences(std::move(s)) {
    for (const auto& sequence : sequences) {
      for (size_t t = 0; t + 1 < sequence.size(); ++t) {
        rows.push_back(static_cast<int64_t>(tokens.size() + t));
        targets.push_back(sequence[t + 1]);
      }
      tokens.insert(tokens.end(), sequence.begin(), sequence.end());
      cu.push_back(static_cast<int64_t>(tokens.size()));
    }
  }
};

std::vector<std::vector<int64_t>> Sequences(int count) {
  std::vector<std::vector<int64_t>> sequences;
  for (int s = 0; s < count; ++s) {
    std::vector<int64_t> tokens;
    for (int t = 0; t < 5 + 9 * s; ++t) tokens.push_back((s * 31 + t * t * 7 + 3) % 61);
    sequences.push_back(tokens);
  }
  return sequences;
}

at::Tensor Hidden(const Parameters& parameters, const Batch& batch) {
  PackedAttention attention(batch.cu);
  auto hidden = Forward(parameters, at::tensor(batch.tokens, at::kLong), PackedPositions(batch.cu), attention);
  EXPECT_TRUE(hidden.ok()) << hidden.status();
  return *hidden;
}

// Sum over the batch of weights[i] log p + entropy, backwards into the parameters' gradients.
void Backward(const Parameters& parameters, const Batch& batch, const LogProbOptions& options) {
  const at::Tensor rows = Hidden(parameters, batch).index_select(0, at::tensor(batch.rows, at::kLong));
  auto result = TokenLogProbs(parameters, rows, at::tensor(batch.targets, at::kLong), options);
  ASSERT_TRUE(result.ok()) << result.status();
  const at::Tensor finite = result->log_probs.masked_fill(result->log_probs == -INFINITY, 0);
  at::Tensor loss = finite.mul(at::arange(finite.numel()).remainder(5).add(1).to(finite.scalar_type())).sum();
  if (options.entropy) loss = loss + result->entropy.sum().mul(0.5);
  loss.backward();
}

double MaxDiff(const at::Tensor& a, const at::Tensor& b) {
  return (a.to(at::kDouble) - b.to(at::kDouble)).abs().max().item<double>();
}

TEST(ModelTest, PackingAndPackedWeightsChangeNoBit) {
  at::NoGradGuard no_grad;
  for (const char* architecture : {"LlamaForCausalLM", "Qwen3ForCausalLM", "MistralForCausalLM"}) {
    Parameters parameters = Make(Config(architecture));
    const Batch batch(Sequences(4));
    const at::Tensor together = Hidden(parameters, batch);
    const at::Tensor logits = *Logits(parameters, together);
    parameters.PackForInference();
    EXPECT_TRUE(at::equal(Hidden(parameters, batch), together));
    EXPECT_TRUE(at::equal(*Logits(parameters, together), logits));
    for (size_t s = 0; s < batch.sequences.size(); ++s) {
      const at::Tensor alone = Hidden(parameters, Batch({batch.sequences[s]}));
      EXPECT_TRUE(at::equal(alone, together.narrow(0, batch.cu[s], alone.size(0)))) << architecture;
    }
  }
}

TEST(ModelTest, GradientsAgreeWithFloat64) {
  // float64 runs ATen's operations, float32 the kernels.
  for (const char* architecture : {"LlamaForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM", "MistralForCausalLM"}) {
    for (const LogProbOptions& options :
         {LogProbOptions{.temperature = 0.8, .entropy = true, .chunk_bytes = 61 * 4 * 7},
          LogProbOptions{.temperature = 1.5, .top_k = 20, .top_p = 0.9, .entropy = true}}) {
      Parameters narrow = Make(Config(architecture, true)), wide = Make(Config(architecture, true), at::kDouble);
      wide.flat_values().copy_(narrow.flat_values());
      narrow.EnableGradients();
      wide.EnableGradients();
      Backward(narrow, Batch(Sequences(3)), options);
      Backward(wide, Batch(Sequences(3)), options);
      const double scale = wide.flat_gradients().abs().max().item<double>();
      EXPECT_GT(scale, 0.1);
      EXPECT_LE(MaxDiff(narrow.flat_gradients(), wide.flat_gradients()) / scale, 1e-5) << architecture;
    }
  }
}

TEST(ModelTest, LogProbsFollowTheirDefinition) {
  // Autograd through plain ATen operations in float64, against the hand-written backward.
  Parameters parameters = Make(Config("LlamaForCausalLM"), at::kDouble);
  parameters.EnableGradients();
  const at::Tensor targets = at::tensor({3, 17, 60, 3}, at::kLong);
  const at::Tensor hidden = at::arange(4 * 24, at::kDouble).sin().view({4, 24}).set_requires_grad(true);
  auto result = TokenLogProbs(parameters, hidden, targets, {.temperature = 0.7, .entropy = true});
  ASSERT_TRUE(result.ok()) << result.status();
  (result->log_probs * result->log_probs).sum().add(result->entropy.sum()).backward();
  const at::Tensor head = parameters.Value("lm_head.weight").clone().set_requires_grad(true);
  const at::Tensor plain = hidden.detach().clone().set_requires_grad(true);
  const at::Tensor log_p = at::log_softmax(at::mm(plain, head.t()) / 0.7, -1);
  const at::Tensor chosen = log_p.gather(1, targets.unsqueeze(1)).squeeze(1);
  (chosen * chosen).sum().sub((log_p.exp() * log_p).sum()).backward();
  EXPECT_LE(MaxDiff(result->log_probs, chosen), 1e-12);
  EXPECT_LE(MaxDiff(hidden.grad(), plain.grad()), 1e-12);
  EXPECT_LE(MaxDiff(parameters.Gradient("lm_head.weight"), head.grad()), 1e-12);
}

TEST(ModelTest, MicrobatchesAddUp) {
  Parameters one = Make(Config("Qwen3ForCausalLM")), four = Make(Config("Qwen3ForCausalLM"));
  one.EnableGradients();
  four.EnableGradients();
  const auto sequences = Sequences(4);
  const auto sum = [](const Parameters& p, const Batch& batch) {
    const at::Tensor rows = Hidden(p, batch).index_select(0, at::tensor(batch.rows, at::kLong));
    TokenLogProbs(p, rows, at::tensor(batch.targets, at::kLong))->log_probs.sum().mul(0.01).backward();
  };
  sum(one, Batch(sequences));
  for (const auto& sequence : sequences) sum(four, Batch({sequence}));
  EXPECT_LE(MaxDiff(one.flat_gradients(), four.flat_gradients()), 1e-6);
  // A second run gives the same bits.
  const at::Tensor first = one.flat_gradients().clone();
  one.ZeroGradients();
  sum(one, Batch(sequences));
  EXPECT_TRUE(at::equal(one.flat_gradients(), first));
}

TEST(ModelTest, ChunksAndFilters) {
  at::NoGradGuard no_grad;
  const Parameters parameters = Make(Config("LlamaForCausalLM"));
  const at::Tensor hidden = Hidden(parameters, Batch(Sequences(3))), targets = at::arange(hidden.size(0)).remainder(61);
  const auto whole = TokenLogProbs(parameters, hidden, targets, {.entropy = true});
  const auto chunked = TokenLogProbs(parameters, hidden, targets, {.entropy = true, .chunk_bytes = 61 * 4 * 3});
  EXPECT_TRUE(at::equal(whole->log_probs, chunked->log_probs));
  EXPECT_TRUE(at::equal(whole->entropy, chunked->entropy));
  const auto greedy = TokenLogProbs(parameters, hidden, Logits(parameters, hidden)->argmax(1), {.top_k = 1});
  EXPECT_EQ(greedy->log_probs.abs().max().item<float>(), 0);
  const auto nucleus = TokenLogProbs(parameters, hidden, Logits(parameters, hidden)->argmax(1), {.top_p = 1e-9});
  EXPECT_EQ(nucleus->log_probs.abs().max().item<float>(), 0);
  const auto filtered = TokenLogProbs(parameters, hidden, targets, {.top_k = 5, .entropy = true});
  EXPECT_TRUE((filtered->log_probs == -INFINITY).any().item<bool>());
  EXPECT_LE(filtered->entropy.max().item<float>(), std::log(5.0) + 1e-5);
}

TEST(ModelTest, BadInputs) {
  const Parameters parameters = Make(Config("LlamaForCausalLM"));
  PackedAttention attention({0, 2});
  const at::Tensor positions = PackedPositions({0, 2});
  EXPECT_THAT(std::string(Forward(parameters, at::tensor({1, 61}, at::kLong), positions, attention).status().message()),
              HasSubstr("token 61 is outside the vocabulary of 61"));
  PackedAttention wrong({0, 3});
  EXPECT_THAT(std::string(Forward(parameters, at::tensor({1, 2}, at::kLong), positions, wrong).status().message()),
              HasSubstr("cu_seqlens must run from 0 to the number of tokens, 2"));
  EXPECT_FALSE(TokenLogProbs(parameters, at::zeros({2, 24}), at::tensor({1, -1}, at::kLong)).ok());
  EXPECT_FALSE(TokenLogProbs(parameters, at::zeros({1, 24}), at::tensor({1}, at::kLong), {.temperature = 0}).ok());
}

class ModelFilesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  const std::filesystem::path folder_ = std::filesystem::path(::testing::TempDir()) / "model_files";
};

TEST_F(ModelFilesTest, RoundTrip) {
  const ModelConfig config = Config("Qwen2ForCausalLM", true);
  const Parameters parameters = Make(config);
  ASSERT_TRUE(parameters.Save(folder_, at::kFloat).ok());
  const auto read_config = LoadModelConfig(folder_);
  ASSERT_TRUE(read_config.ok()) << read_config.status();
  auto read = Parameters::Load(*read_config, folder_, at::kFloat);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_TRUE(at::equal(read->flat_values(), parameters.flat_values()));
  ASSERT_TRUE(parameters.Save(folder_, at::kBFloat16, 2000).ok());
  EXPECT_TRUE(std::filesystem::exists(folder_ / "model.safetensors.index.json"));
  read = Parameters::Load(config, folder_, at::kFloat);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_TRUE(at::equal(read->flat_values(), parameters.flat_values().to(at::kBFloat16).to(at::kFloat)));
  EXPECT_EQ(LoadModelConfig(folder_)->dtype, "bfloat16");
}

TEST_F(ModelFilesTest, WrongFiles) {
  const Parameters parameters = Make(Config("LlamaForCausalLM"));
  ASSERT_TRUE(parameters.Save(folder_, at::kFloat).ok());
  const auto error = [&](const ModelConfig& config) {
    return std::string(Parameters::Load(config, folder_, at::kFloat).status().message());
  };
  EXPECT_THAT(error(Config("Qwen3ForCausalLM")),
              HasSubstr("tensor \"model.layers.0.self_attn.q_norm.weight\" is missing: expected shape [10]"));
  EXPECT_THAT(error(Config("MistralForCausalLM")), HasSubstr("the config has no such parameter"));
  ModelConfig wider = Config("LlamaForCausalLM");
  wider.vocab_size = 62;
  EXPECT_THAT(error(wider),
              HasSubstr("tensor \"model.embed_tokens.weight\": shape [61, 24], the config expects [62, 24]"));
}

TEST_F(ModelFilesTest, TiedHeadUnderEitherName) {
  const ModelConfig config = Config("MistralForCausalLM", true);
  const Parameters parameters = Make(config);
  std::vector<checkpoint::TensorSource> sources;
  parameters.ForEach([&](const ParameterSpec& spec, const at::Tensor& value) {
    const std::string name = spec.name == "model.embed_tokens.weight" ? "lm_head.weight" : spec.name;
    sources.push_back({name,
                       checkpoint::DType::kF32,
                       spec.shape,
                       {static_cast<const char*>(value.const_data_ptr()), value.nbytes()}});
  });
  ASSERT_TRUE(checkpoint::WriteCheckpoint(folder_, sources).ok());
  const auto read = Parameters::Load(config, folder_, at::kFloat);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_TRUE(at::equal(read->flat_values(), parameters.flat_values()));
}

}  // namespace
}  // namespace manta::model
