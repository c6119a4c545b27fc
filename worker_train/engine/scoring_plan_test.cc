// Sharing beginnings changes nothing: the plan holds every prefix once, and through the model log-probabilities and
// gradients are those of each sequence by itself.
#include "worker_train/engine/scoring_plan.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <map>
#include <set>

#include "common/base/random.h"
#include "common/model/forward.h"
#include "common/model/log_prob.h"
#include "common/model/packed_attention.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "worker_train/engine/scored_rows.h"

namespace manta::train {
namespace {

struct Packed {
  std::vector<int32_t> lengths, tokens;
  std::vector<float> wanted;  // weights of the tokens that are read
  void Add(std::vector<int32_t> sequence, std::vector<float> weights) {
    lengths.push_back(static_cast<int32_t>(sequence.size()));
    tokens.insert(tokens.end(), sequence.begin(), sequence.end());
    wanted.insert(wanted.end(), weights.begin(), weights.end());
  }
  Packed One(size_t s) const {
    size_t start = 0;
    for (size_t i = 0; i < s; ++i) start += static_cast<size_t>(lengths[i]);
    const auto begin = static_cast<std::ptrdiff_t>(start), end = begin + lengths[s];
    Packed one;
    one.Add({tokens.begin() + begin, tokens.begin() + end}, {wanted.begin() + begin, wanted.begin() + end});
    return one;
  }
};

// Sequences that begin like one of those before them, up to a random token; some are equal, some part of another.
Packed RandomBatch(uint64_t seed, int64_t vocabulary, int32_t longest) {
  RandomStream random(seed);
  std::vector<std::vector<int32_t>> sequences;
  Packed batch;
  const uint64_t count = random.NextBelow(14);
  for (uint64_t s = 0; s < count; ++s) {
    std::vector<int32_t> sequence;
    if (!sequences.empty() && random.NextBelow(4) != 0) {
      sequence = sequences[random.NextBelow(sequences.size())];
      sequence.resize(random.NextBelow(sequence.size() + 1));
    }
    const uint64_t more = random.NextBelow(static_cast<uint64_t>(longest));
    for (uint64_t t = random.NextBelow(3) == 0 ? more : 0; t < more || sequence.empty(); ++t) {
      sequence.push_back(static_cast<int32_t>(random.NextBelow(static_cast<uint64_t>(vocabulary))));
    }
    std::vector<float> weights;
    const bool response_only = random.NextBelow(2) == 0;
    for (size_t t = 0; t < sequence.size(); ++t) {
      const bool read = response_only ? t > sequence.size() / 2 : random.NextBelow(3) != 0;
      weights.push_back(read ? 0.25f + static_cast<float>(random.NextUniform()) : 0.0f);
    }
    sequences.push_back(sequence);
    batch.Add(std::move(sequence), std::move(weights));
  }
  return batch;
}

TEST(ScoringPlanTest, HoldsEveryPrefixOnce) {
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    SCOPED_TRACE(seed);
    const Packed batch = RandomBatch(seed, 1 + static_cast<int64_t>(seed % 5), 8);
    const bool all = seed % 7 == 0;
    const ScoringPlan plan =
        PlanScoring(batch.lengths, batch.tokens, all ? std::span<const float>() : std::span(batch.wanted));
    // Every row's prefix, read off the layout.
    ASSERT_EQ(model::LayoutFault(plan.layout, static_cast<int64_t>(plan.tokens.size())), "");
    std::vector<std::vector<int32_t>> prefixes;
    for (size_t s = 0; s < plan.layout.num_sequences(); ++s) {
      ASSERT_GT(plan.layout.own(s), 0);
      std::vector<int32_t> prefix;
      for (const int64_t row : plan.layout.prefix(s)) {
        prefix.push_back(static_cast<int32_t>(plan.tokens[static_cast<size_t>(row)]));
        ASSERT_EQ(prefixes[static_cast<size_t>(row)], prefix);
      }
      for (int64_t row = plan.layout.cu_seqlens[s]; row < plan.layout.cu_seqlens[s + 1]; ++row) {
        prefix.push_back(static_cast<int32_t>(plan.tokens[static_cast<size_t>(row)]));
        prefixes.push_back(prefix);
      }
    }
    // What a plain walk over the batch finds.
    std::set<std::vector<int32_t>> rows;
    std::set<std::vector<int32_t>> scores;
    std::map<int64_t, std::vector<int32_t>> read;  // by place: the tokens up to it and with it
    size_t start = 0;
    for (const int32_t length : batch.lengths) {
      size_t last = 0;
      for (size_t t = 1; t < static_cast<size_t>(length); ++t) {
        if (!all && batch.wanted[start + t] == 0) continue;
        const auto begin = batch.tokens.begin() + static_cast<std::ptrdiff_t>(start);
        const std::vector<int32_t> scored(begin, begin + static_cast<std::ptrdiff_t>(t) + 1);
        read[static_cast<int64_t>(start + t)] = scored;
        scores.insert(scored);
        last = t;
      }
      for (size_t t = 1; t <= last; ++t) {
        const auto begin = batch.tokens.begin() + static_cast<std::ptrdiff_t>(start);
        rows.emplace(begin, begin + static_cast<std::ptrdiff_t>(t));
      }
      start += static_cast<size_t>(length);
    }
    ASSERT_EQ(prefixes.size(), rows.size());
    ASSERT_EQ((std::set<std::vector<int32_t>>(prefixes.begin(), prefixes.end())), rows);
    ASSERT_EQ(plan.rows.size(), scores.size());
    ASSERT_EQ(plan.places.size(), read.size());
    for (size_t i = 0; i < plan.places.size(); ++i) {
      const auto score = static_cast<size_t>(plan.scores[i]);
      std::vector<int32_t> scored = prefixes[static_cast<size_t>(plan.rows[score])];
      scored.push_back(static_cast<int32_t>(plan.targets[score]));
      ASSERT_EQ(scored, read.at(plan.places[i]));
    }
  }
}

model::Parameters RandomModel(int64_t window, at::ScalarType dtype) {
  const nlohmann::ordered_json json = {{"architectures", {"MistralForCausalLM"}},
                                       {"vocab_size", 37},
                                       {"hidden_size", 24},
                                       {"intermediate_size", 40},
                                       {"num_hidden_layers", 2},
                                       {"num_attention_heads", 4},
                                       {"num_key_value_heads", 2},
                                       {"head_dim", 10},
                                       {"sliding_window", window},
                                       {"initializer_range", 0.3}};
  const auto config = model::ParseModelConfig(json.dump(), "config.json");
  EXPECT_TRUE(config.ok()) << config.status();
  auto parameters = model::Parameters::Random(*config, 5, dtype);
  EXPECT_TRUE(parameters.ok()) << parameters.status();
  parameters->EnableGradients();
  return *parameters;
}

// Log-probabilities by token, zero where they are not read. The sum over the tokens, weighted by `wanted`, goes back
// into the parameters' gradients.
at::Tensor ScoreAll(const model::Parameters& parameters, const Packed& batch) {
  const ScoringPlan plan = PlanScoring(batch.lengths, batch.tokens, batch.wanted);
  const auto wide = parameters.dtype();
  at::Tensor by_token = at::zeros({static_cast<int64_t>(batch.tokens.size())}, wide);
  if (plan.rows.empty()) return by_token;
  model::PackedAttention attention(plan.layout);
  const auto hidden =
      model::Forward(parameters, at::tensor(plan.tokens, at::kLong), model::PackedPositions(plan.layout), attention);
  EXPECT_TRUE(hidden.ok()) << hidden.status();
  const auto scores = model::TokenLogProbs(parameters, hidden->index_select(0, at::tensor(plan.rows, at::kLong)),
                                           at::tensor(plan.targets, at::kLong));
  EXPECT_TRUE(scores.ok()) << scores.status();
  const at::Tensor places = at::tensor(plan.places, at::kLong);
  const at::Tensor read = scores->log_probs.index_select(0, at::tensor(plan.scores, at::kLong));
  read.mul(at::tensor(batch.wanted).to(wide).index_select(0, places)).sum().backward();
  by_token.index_copy_(0, places, read.detach());
  return by_token;
}

double MaxDiff(const at::Tensor& a, const at::Tensor& b) {
  return a.numel() == 0 ? 0 : (a - b).abs().max().item<double>();
}

TEST(ScoringPlanTest, TheModelScoresAsIfEachSequenceWereAlone) {
  at::set_num_threads(1);
  for (const int64_t window : {3, 20, 100}) {
    for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
      model::Parameters together = RandomModel(window, dtype), alone = RandomModel(window, dtype);
      for (uint64_t seed = 0; seed < 25; ++seed) {
        SCOPED_TRACE(testing::Message() << "window " << window << " seed " << seed << " " << toString(dtype));
        const Packed batch = RandomBatch(seed, 37, seed % 5 == 0 ? 60 : 15);
        together.ZeroGradients();
        alone.ZeroGradients();
        const at::Tensor scores = ScoreAll(together, batch);
        std::vector<at::Tensor> each = {at::zeros({0}, dtype)};
        for (size_t s = 0; s < batch.lengths.size(); ++s) each.push_back(ScoreAll(alone, batch.One(s)));
        const double scale = std::max(1.0, alone.flat_gradients().abs().max().item<double>());
        if (dtype == at::kFloat) {
          EXPECT_TRUE(at::equal(scores, at::cat(each)));  // to the bit
          EXPECT_LE(MaxDiff(together.flat_gradients(), alone.flat_gradients()) / scale, 1e-5);
        } else {
          EXPECT_LE(MaxDiff(scores, at::cat(each)), 1e-12);
          EXPECT_LE(MaxDiff(together.flat_gradients(), alone.flat_gradients()) / scale, 1e-12);
        }
      }
    }
  }
}

// Through ScoredRows, with a filter and without it.
TEST(ScoringPlanTest, ScoredRowsAddUpGradients) {
  at::set_num_threads(1);
  model::Parameters together = RandomModel(8, at::kFloat), alone = RandomModel(8, at::kFloat);
  ScoreOptions options;
  options.top_k = 20;
  options.unfiltered = true;
  const auto score = [&](model::Parameters& parameters, const Packed& batch, std::vector<float>& out) {
    auto scored = ScoredRows::Compute(parameters, batch.lengths, batch.tokens, batch.wanted, options);
    ASSERT_TRUE(scored.ok()) << scored.status();
    std::vector<float> filtered(batch.tokens.size(), 0.0f), unfiltered = filtered;
    scored->CopyTo(filtered);
    scored->CopyUnfilteredTo(unfiltered);
    out.insert(out.end(), filtered.begin(), filtered.end());
    std::vector<float> half = batch.wanted;
    for (float& weight : half) weight *= -0.5f;
    ASSERT_TRUE(scored->Backward(batch.wanted, half).ok());
  };
  for (uint64_t seed = 0; seed < 25; ++seed) {
    SCOPED_TRACE(seed);
    const Packed batch = RandomBatch(seed, 37, 15);
    together.ZeroGradients();
    alone.ZeroGradients();
    std::vector<float> scores, each;
    score(together, batch, scores);
    for (size_t s = 0; s < batch.lengths.size(); ++s) score(alone, batch.One(s), each);
    EXPECT_EQ(scores, each);
    const double scale = std::max(1.0, alone.flat_gradients().abs().max().item<double>());
    EXPECT_LE(MaxDiff(together.flat_gradients(), alone.flat_gradients()) / scale, 1e-5);
  }
}

}  // namespace
}  // namespace manta::train
