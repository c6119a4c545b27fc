// Properties of the losses; their values are compared in tests/golden.
#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include "common/base/random.h"
#include "gtest/gtest.h"
#include "worker_train/loss/clipped_pg.h"
#include "worker_train/loss/nll.h"
#include "worker_train/loss/token_logprobs.h"

namespace manta::train {
namespace {

struct Data {
  std::vector<int32_t> lengths;
  std::vector<double> token_mask, sample_mask, current, advantages, prev, generation, reference, rewards, gradient;

  explicit Data(uint64_t seed) {
    RandomStream random(seed);
    for (int i = 0; i < 5; ++i) {
      lengths.push_back(static_cast<int32_t>(2 + random.NextBelow(6)));
      sample_mask.push_back(i == 3 ? 0 : 1);
      rewards.push_back(i % 2);
      const double advantage = random.NextNormal();
      for (int32_t t = 0; t < lengths.back(); ++t) {
        token_mask.push_back(t == 0 || random.NextUniform() < 0.2 ? 0 : 1);
        advantages.push_back(advantage);
        current.push_back(-0.1 - 2 * random.NextUniform());
        prev.push_back(current.back() + 0.3 * random.NextNormal());
        generation.push_back(prev.back() + 0.2 * random.NextNormal());
        reference.push_back(current.back() + 0.5 * random.NextNormal());
      }
    }
    gradient.resize(current.size());
  }
  PackedTokens<double> View() const {
    PackedTokens<double> view;
    view.lengths = lengths;
    view.token_mask = token_mask;
    view.sample_mask = sample_mask;
    view.current_logprobs = current;
    view.advantages = advantages;
    view.prev_logprobs = prev;
    view.generation_logprobs = generation;
    view.reference_logprobs = reference;
    view.rewards = rewards;
    view.global_valid_toks = 17;
    view.global_valid_seqs = 4;
    view.global_correct_toks = 7;
    return view;
  }
  double Loss(const ClippedPgOptions& options) {
    MetricSet metrics;
    return ClippedPgLoss<double>(options, View(), {gradient, {}}, metrics);
  }
};

// The written-out gradient against central differences, for options without stopped gradients.
TEST(ClippedPgLossTest, GradientMatchesDifferences) {
  for (int variant = 0; variant < 64; ++variant) {
    SCOPED_TRACE(variant);
    Data data(static_cast<uint64_t>(variant));
    ClippedPgOptions options;
    options.token_level_loss = variant & 1;
    options.sequence_level_ratios = variant & 2;
    options.importance_sampling_correction = variant & 4;
    if (variant & 8) options.ratio_clip_c = 1.3;
    if (variant & 16) options.disable_ppo_ratio = true;
    if (variant & 32) {
      options.kl_penalty = 0.3;
      options.kl_type = KlType::kK2;
      options.on_policy_kl_approximation = true;
      options.positive_nll_weight = 0.2;
    }
    data.Loss(options);
    const std::vector<double> gradient = data.gradient;
    for (size_t t = 0; t < data.current.size(); ++t) {
      constexpr double kStep = 1e-6;
      const double value = data.current[t];
      data.current[t] = value + kStep;
      const double above = data.Loss(options);
      data.current[t] = value - kStep;
      const double below = data.Loss(options);
      data.current[t] = value;
      EXPECT_NEAR(gradient[t], (above - below) / (2 * kStep), 1e-7) << t;
    }
  }
}

TEST(ClippedPgLossTest, MaskedTokensMayHoldAnything) {
  Data data(1);
  const double loss = data.Loss({});
  for (size_t t = 0; t < data.current.size(); ++t) {
    if (data.token_mask[t] == 0) data.current[t] = data.prev[t] = std::numeric_limits<double>::quiet_NaN();
  }
  EXPECT_EQ(data.Loss({}), loss);
  for (size_t t = 0; t < data.current.size(); ++t) {
    if (data.token_mask[t] == 0) {
      EXPECT_EQ(data.gradient[t], 0);
    }
  }
}

TEST(ClippedPgLossTest, TokensOutsideTheFilterAreMasked) {
  Data data(2), masked(2);
  data.current[1] = -std::numeric_limits<double>::infinity();
  masked.token_mask[1] = 0;
  EXPECT_EQ(data.Loss({}), masked.Loss({}));
  EXPECT_EQ(data.gradient, masked.gradient);
}

TEST(ClippedPgLossTest, AnOverflowingWeightIsTruncatedToTheBound) {
  Data data(3), bounded(3);
  ClippedPgOptions options;
  options.importance_sampling_correction = true;
  options.truncation = TruncationType::kTis;
  options.truncation_max = 2;
  data.generation[1] = data.prev[1] - 1000;
  bounded.generation[1] = bounded.prev[1] - 10;
  EXPECT_EQ(data.Loss(options), bounded.Loss(options));
}

TEST(ClippedPgLossTest, EmptyMicrobatchGivesZeroAndNamesAllMetrics) {
  MetricSet empty, full;
  EXPECT_EQ(ClippedPgLoss<double>({}, {}, {}, empty), 0);
  Data data(4);
  ClippedPgLoss<double>({}, data.View(), {data.gradient, {}}, full);
  const double loss = full.Get("loss"), smallest = full.Get("probs_ratio_min");
  full.Merge(empty);
  EXPECT_EQ(full.Get("loss"), loss);
  EXPECT_EQ(full.Get("probs_ratio_min"), smallest);
  EXPECT_EQ(MetricSet::Logged(empty.metrics()[3]), -1);
}

TEST(ClippedPgOptionsTest, NamesWhatIsWrong) {
  const auto error = [](const std::function<void(v1::ClippedPgLoss&)>& change) {
    v1::ClippedPgLoss config;
    change(config);
    return std::string(ParseClippedPgOptions(config).status().message());
  };
  EXPECT_NE(error([](auto& c) { c.set_reference_policy_kl_type("k4"); }).find("k4"), std::string::npos);
  EXPECT_NE(error([](auto& c) { c.set_ratio_clip_c(1); }).find("ratio_clip_c"), std::string::npos);
  EXPECT_NE(error([](auto& c) { c.set_truncated_importance_sampling_type("tis"); }).find("ratio"), std::string::npos);
  EXPECT_NE(error([](auto& c) { c.set_truncated_importance_sampling_type("x"); }).find("icepop"), std::string::npos);
}

TEST(NllLossTest, PartsOfMicrobatchesAddUp) {
  Data data(5);
  MetricSet whole, parts;
  const double loss = NllLoss<double>(data.View(), {data.gradient, {}}, whole);
  double sum = 0;
  size_t start = 0;
  for (size_t i = 0; i < data.lengths.size(); ++i) {
    const auto size = static_cast<size_t>(data.lengths[i]);
    PackedTokens<double> one = data.View();
    one.lengths = one.lengths.subspan(i, 1);
    one.sample_mask = one.sample_mask.subspan(i, 1);
    one.token_mask = one.token_mask.subspan(start, size);
    one.current_logprobs = one.current_logprobs.subspan(start, size);
    std::vector<double> gradient(size);
    MetricSet part;
    sum += NllLoss<double>(one, {gradient, {}}, part);
    parts.Merge(part);
    for (size_t t = 0; t < size; ++t) EXPECT_EQ(gradient[t], data.gradient[start + t]);
    start += size;
  }
  EXPECT_NEAR(sum, loss, 1e-15);
  EXPECT_EQ(parts.Get("num_unmasked_tokens"), whole.Get("num_unmasked_tokens"));
}

TEST(TokenLogprobsTest, FilterKeepsTiesAndAtLeastOne) {
  std::vector<float> logits = {1, 3, 2, 3, 0};
  ApplyFilter<float>({.top_k = 1, .top_p = 1}, logits);
  EXPECT_TRUE(std::isfinite(logits[1]) && std::isfinite(logits[3]) && std::isinf(logits[2]));
  ApplyFilter<float>({.top_k = 0, .top_p = 1e-9}, logits);
  EXPECT_EQ(std::isfinite(logits[1]) + std::isfinite(logits[3]), 1);
}

}  // namespace
}  // namespace manta::train
