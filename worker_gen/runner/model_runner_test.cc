// The model runner under the engine: Hugging Face's greedy tokens, the trainer's log-probabilities, and the promise
// that a request's result does not depend by a bit on what else is going on.
#include "worker_gen/runner/model_runner.h"

#include <ATen/core/grad_mode.h>

#include <cstring>
#include <map>

#include "common/base/check.h"
#include "common/base/file.h"
#include "common/base/random.h"
#include "common/checkpoint/reader.h"
#include "common/model/forward.h"
#include "common/model/log_prob.h"
#include "common/model/packed_attention.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/shared_data.h"
#include "worker_gen/engine/engine_core.h"

namespace manta::gen {
namespace {

struct Heard : RequestSink {
  void OnToken(const GeneratedToken& token) override { tokens.push_back(token); }
  void OnFinish(const absl::Status& s, const Completion& c) override {
    status = s;
    completion = c;
    finished = true;
  }
  std::vector<GeneratedToken> tokens;
  absl::Status status;
  Completion completion;
  bool finished = false;
};

EngineOptions OptionsFor(const model::ModelConfig& config, int32_t num_blocks, int32_t block_size) {
  EngineOptions options;
  options.num_blocks = num_blocks;
  options.limits.block_size = block_size;
  options.max_model_len = num_blocks * block_size;
  options.vocab_size = static_cast<int32_t>(config.vocab_size);
  return options;
}

GenerationRequest Request(std::vector<int32_t> prompt, SamplingOptions sampling, std::shared_ptr<RequestSink> sink) {
  GenerationRequest request;
  request.prompt = std::move(prompt);
  request.options = std::move(sampling);
  request.sink = std::move(sink);
  return request;
}

void Add(EngineCore& core, uint64_t id, GenerationRequest request, uint64_t prompt_id = 0) {
  auto sequence = std::make_unique<Sequence>(id, std::move(request), absl::Span<const int32_t>());
  sequence->prompt_id = prompt_id;
  core.Add(std::move(sequence));
}

class GoldenGreedyTest : public ::testing::TestWithParam<const char*> {};

TEST_P(GoldenGreedyTest, TokensAndLogprobsAreHuggingFaces) {
  MANTA_NEED_SHARED("goldens/models");
  const auto folder = manta::testing::SharedDir() / "goldens/models" / GetParam();
  const auto config = model::LoadModelConfig(folder);
  ASSERT_TRUE(config.ok()) << config.status();
  auto parameters = model::Parameters::Load(*config, folder, at::kFloat);
  ASSERT_TRUE(parameters.ok()) << parameters.status();
  auto runner = ModelRunner::Create(*parameters, 64, 4);
  ASSERT_TRUE(runner.ok()) << runner.status();
  const auto golden = nlohmann::json::parse(*ReadFile(folder / "golden.json"));
  const auto tensors = checkpoint::Checkpoint::Open(folder / "golden.safetensors");
  ASSERT_TRUE(tensors.ok()) << tensors.status();
  const double tolerance = golden["suggested_atol"]["generated_logprobs"];
  // Whole prompts together, and in chunks that cut them anywhere.
  for (int32_t max_batched_tokens : {2048, 5}) {
    EngineOptions options = OptionsFor(*config, 64, 4);
    options.limits.max_batched_tokens = max_batched_tokens;
    EngineCore core(options, runner->get());
    std::vector<std::shared_ptr<Heard>> heard;
    for (size_t i = 0; i < golden["input_ids"].size(); ++i) {
      SamplingOptions sampling;
      sampling.temperature = 0;
      sampling.max_new_tokens = 16;
      heard.push_back(std::make_shared<Heard>());
      Add(core, i, Request(golden["input_ids"][i].get<std::vector<int32_t>>(), sampling, heard.back()));
    }
    while (core.has_work()) core.Step();
    for (size_t i = 0; i < heard.size(); ++i) {
      ASSERT_TRUE(heard[i]->status.ok()) << heard[i]->status;
      const auto* view = tensors->Find(absl::StrCat("generated_logprobs.", i));
      ASSERT_NE(view, nullptr);
      std::vector<float> logprobs(16);
      ASSERT_EQ(view->bytes.size(), 64u);
      std::memcpy(logprobs.data(), view->bytes.data(), 64);
      ASSERT_EQ(heard[i]->tokens.size(), 16u);
      for (size_t t = 0; t < 16; ++t) {
        EXPECT_EQ(heard[i]->tokens[t].token, golden["generated"][i][t].get<int32_t>())
            << "sequence " << i << " token " << t;
        EXPECT_NEAR(heard[i]->tokens[t].raw_logprob, logprobs[t], tolerance) << "sequence " << i << " token " << t;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, GoldenGreedyTest,
                         ::testing::Values("llama", "llama_rope3", "qwen2", "qwen3", "qwen3_bf16", "qwen3_yarn",
                                           "mistral"));

constexpr char kTinyConfig[] = R"({
  "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "vocab_size": 61, "hidden_size": 24,
  "intermediate_size": 40, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8,
  "max_position_embeddings": 256, "rms_norm_eps": 1e-6, "rope_theta": 10000, "tie_word_embeddings": true,
  "initializer_range": 0.3, "hidden_act": "silu", "torch_dtype": "float32"})";

class TinyModelTest : public ::testing::Test {
 protected:
  static model::Parameters MakeParameters() {
    const auto config = model::ParseModelConfig(kTinyConfig, "tiny");
    MANTA_CHECK(config.ok()) << config.status();
    auto parameters = model::Parameters::Random(*config, 7, at::kFloat);
    MANTA_CHECK(parameters.ok()) << parameters.status();
    return *parameters;
  }
  const model::Parameters parameters_ = MakeParameters();
};

struct Spec {
  std::vector<int32_t> prompt;
  SamplingOptions sampling;
  std::vector<GeneratedToken> alone;
};

constexpr size_t kSamples = 4;  // of each prompt, with options of their own

std::vector<Spec> MakeSpecs(uint64_t seed) {
  RandomStream random(seed);
  std::vector<Spec> specs(40 * kSamples);
  for (size_t i = 0; i < specs.size(); ++i) {
    Spec& spec = specs[i];
    if (i % kSamples != 0) {
      spec.prompt = specs[i - 1].prompt;
    } else {
      const int32_t length = 1 + static_cast<int32_t>(random.NextBelow(30));
      const int32_t kind = static_cast<int32_t>(random.NextBelow(4));  // few kinds: shared prefixes
      for (int32_t t = 0; t < length; ++t) spec.prompt.push_back((kind * 13 + t * 7) % 61);
    }
    spec.sampling.seed = random.NextU64();
    spec.sampling.temperature = std::vector<double>{0, 0.7, 1, 1.3}[random.NextBelow(4)];
    spec.sampling.top_k = random.NextBelow(3) == 0 ? 10 : 0;
    spec.sampling.top_p = random.NextBelow(3) == 0 ? 0.9 : 1.0;
    spec.sampling.max_new_tokens = 1 + static_cast<int32_t>(random.NextBelow(16));
  }
  return specs;
}

TEST_F(TinyModelTest, AThousandRandomMixesGiveTheSameBits) {
  constexpr uint64_t kSeed = 20;
  std::vector<Spec> specs = MakeSpecs(kSeed);
  for (Spec& spec : specs) {  // alone: the whole prompt at once, no prefix cache
    auto runner = ModelRunner::Create(parameters_, 20, 4);
    ASSERT_TRUE(runner.ok()) << runner.status();
    EngineOptions options = OptionsFor(parameters_.config(), 20, 4);
    options.prefix_cache = false;
    EngineCore core(options, runner->get());
    auto heard = std::make_shared<Heard>();
    Add(core, 0, Request(spec.prompt, spec.sampling, heard));
    while (core.has_work()) core.Step();
    ASSERT_TRUE(heard->status.ok()) << heard->status;
    spec.alone = heard->tokens;
  }
  int64_t preemptions = 0, hits = 0, forks = 0;
  for (uint64_t mix = 0; mix < 1000; ++mix) {
    SCOPED_TRACE(::testing::Message() << "seed " << kSeed << " mix " << mix);
    RandomStream random(kSeed, 1 + mix);
    const int32_t block_size = 1 + static_cast<int32_t>(random.NextBelow(6));
    const int32_t num_blocks = (50 + static_cast<int32_t>(random.NextBelow(100))) / block_size + 1;
    auto runner = ModelRunner::Create(parameters_, num_blocks, block_size);
    ASSERT_TRUE(runner.ok()) << runner.status();
    EngineOptions options = OptionsFor(parameters_.config(), num_blocks, block_size);
    options.limits.max_num_seqs = 1 + static_cast<int32_t>(random.NextBelow(10));
    options.limits.max_batched_tokens = 1 + static_cast<int32_t>(random.NextBelow(60));
    options.prefix_cache = random.NextBelow(4) != 0;
    EngineCore core(options, runner->get());
    std::vector<std::pair<const Spec*, std::shared_ptr<Heard>>> requests;
    const size_t count = 2 + random.NextBelow(8);
    while (requests.size() < count || core.has_work()) {
      while (requests.size() < count && random.NextBelow(3) != 0) {
        // One request, or the samples of a prompt: most of them together, the last perhaps some steps later.
        const size_t first = random.NextBelow(specs.size() / kSamples) * kSamples;
        const uint64_t prompt_id = requests.size() + 1;
        for (size_t s = random.NextBelow(kSamples); s < kSamples; ++s) {
          if (s == kSamples - 1 && random.NextBelow(3) == 0) core.Step();
          const Spec& spec = specs[first + s];
          requests.emplace_back(&spec, std::make_shared<Heard>());
          Add(core, requests.size(), Request(spec.prompt, spec.sampling, requests.back().second), prompt_id);
        }
      }
      if (random.NextBelow(40) == 0) core.DropCache();
      core.Step();
    }
    for (const auto& [spec, heard] : requests) {
      ASSERT_TRUE(heard->status.ok()) << heard->status;
      preemptions += heard->completion.preemptions;
      const int32_t cached = heard->completion.cached_prompt_tokens;
      (cached == static_cast<int32_t>(spec->prompt.size()) ? forks : hits) += cached > 0 ? 1 : 0;
      ASSERT_EQ(heard->tokens.size(), spec->alone.size());
      for (size_t t = 0; t < spec->alone.size(); ++t) {
        ASSERT_EQ(heard->tokens[t].token, spec->alone[t].token) << "token " << t;
        ASSERT_EQ(heard->tokens[t].logprob, spec->alone[t].logprob) << "token " << t;
        ASSERT_EQ(heard->tokens[t].raw_logprob, spec->alone[t].raw_logprob) << "token " << t;
      }
    }
  }
  EXPECT_GT(preemptions, 500);  // the mixes are what they claim to be
  EXPECT_GT(hits, 1000);
  EXPECT_GT(forks, 1000);
}

// Samples of two prompts, not one prompt after the other.
TEST_F(TinyModelTest, ManySamplesDrawFromOneRow) {
  auto runner = ModelRunner::Create(parameters_, 64, 4);
  ASSERT_TRUE(runner.ok()) << runner.status();
  const std::vector<int32_t> a = {1, 5, 9, 2, 40}, b = {3, 1};
  std::vector<SamplingOptions> options(60);
  std::vector<std::vector<int32_t>> tables(60);
  std::vector<SequenceChunk> chunks(60);
  for (int i = 0; i < 60; ++i) {
    const auto& prompt = i % 3 == 0 ? a : b;
    options[i].seed = i;
    // Two prompts of two blocks and one; each fork has a last block of its own.
    tables[i] = i % 3 == 0 ? std::vector<int32_t>{0, 1 + i} : std::vector<int32_t>{1 + i};
    chunks[i].blocks = tables[i];
    chunks[i].options = &options[i];
    if (i < 2) {
      chunks[i].tokens = prompt;
    } else {
      chunks[i].num_computed = static_cast<int32_t>(prompt.size());
      chunks[i].fork_of = i % 3 == 0 ? 0 : 1;
    }
  }
  std::vector<absl::StatusOr<SampledToken>> drawn(60), alone(1);
  ASSERT_TRUE((*runner)->Step(chunks, absl::MakeSpan(drawn)).ok());
  for (int i = 0; i < 60; ++i) {
    SequenceChunk chunk;
    chunk.tokens = i % 3 == 0 ? a : b;
    const std::vector<int32_t> blocks = {62, 63};
    chunk.blocks = blocks;
    chunk.options = &options[i];
    ASSERT_TRUE((*runner)->Step({&chunk, 1}, absl::MakeSpan(alone)).ok());
    ASSERT_TRUE(drawn[i].ok()) << drawn[i].status();
    EXPECT_EQ(drawn[i]->token, alone[0]->token) << i;
    EXPECT_EQ(drawn[i]->logprob, alone[0]->logprob) << i;
  }
}

TEST_F(TinyModelTest, LogprobsAreTheTrainers) {
  auto runner = ModelRunner::Create(parameters_, 64, 4);
  ASSERT_TRUE(runner.ok()) << runner.status();
  EngineCore core(OptionsFor(parameters_.config(), 64, 4), runner->get());
  SamplingOptions sampling;
  sampling.temperature = 0.8;
  sampling.max_new_tokens = 100;
  sampling.seed = 3;
  auto heard = std::make_shared<Heard>();
  const std::vector<int32_t> prompt = {1, 5, 9, 2, 40};
  Add(core, 0, Request(prompt, sampling, heard));
  while (core.has_work()) core.Step();
  std::vector<int64_t> tokens(prompt.begin(), prompt.end());
  for (const GeneratedToken& token : heard->tokens) tokens.push_back(token.token);

  at::NoGradGuard no_grad;
  const int64_t length = static_cast<int64_t>(tokens.size());
  const std::vector<int64_t> cu_seqlens = {0, length};
  model::PackedAttention attention(cu_seqlens);
  const auto hidden =
      model::Forward(parameters_, at::tensor(tokens, at::kLong), model::PackedPositions(cu_seqlens), attention);
  ASSERT_TRUE(hidden.ok()) << hidden.status();
  for (double temperature : {0.8, 1.0}) {
    const auto logprobs = model::TokenLogProbs(parameters_, hidden->slice(0, 0, length - 1),
                                               at::tensor(tokens, at::kLong).slice(0, 1), {.temperature = temperature});
    ASSERT_TRUE(logprobs.ok()) << logprobs.status();
    for (size_t t = 0; t < heard->tokens.size(); ++t) {
      const float trainer = logprobs->log_probs[static_cast<int64_t>(prompt.size() + t - 1)].item<float>();
      EXPECT_NEAR(temperature == 1.0 ? heard->tokens[t].raw_logprob : heard->tokens[t].logprob, trainer, 5e-6);
    }
  }
}

TEST_F(TinyModelTest, NewWeightsCountFromTheNextStep) {
  auto runner = ModelRunner::Create(parameters_, 64, 4);
  ASSERT_TRUE(runner.ok()) << runner.status();
  auto other = model::Parameters::Random(parameters_.config(), 8, at::kFloat);
  ASSERT_TRUE(other.ok());
  SamplingOptions sampling;
  sampling.temperature = 0;
  sampling.max_new_tokens = 8;
  std::vector<std::vector<int32_t>> results;
  EngineCore core(OptionsFor(parameters_.config(), 64, 4), runner->get());
  const at::Tensor first = parameters_.flat_values().clone();
  for (const at::Tensor& values : {first, other->flat_values(), first}) {
    (*runner)->SetWeights(values);
    core.SetWeightVersion(results.size(), /*keep_prefix_cache=*/false);
    auto heard = std::make_shared<Heard>();
    Add(core, results.size(), Request({1, 2, 3, 4, 5, 6, 7, 8, 9}, sampling, heard));
    while (core.has_work()) core.Step();
    results.emplace_back();
    for (const GeneratedToken& token : heard->tokens) results.back().push_back(token.token);
    EXPECT_EQ(heard->completion.cached_prompt_tokens, 0);
  }
  EXPECT_EQ(results[0], results[2]);
  EXPECT_NE(results[0], results[1]);
}

}  // namespace
}  // namespace manta::gen
