#include "worker_gen/sampling/sampler.h"

#include <cmath>
#include <limits>
#include <set>

#include "common/base/random.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace manta::gen {
namespace {

std::vector<float> RandomLogits(uint64_t seed, int32_t vocabulary, double spread) {
  RandomStream random(seed);
  std::vector<float> logits(vocabulary);
  for (float& logit : logits) logit = static_cast<float>(spread * random.NextNormal());
  return logits;
}

// The definition, in double and by sorting: the probability of each token after temperature and filters.
std::vector<double> Reference(const std::vector<float>& logits, const SamplingOptions& options) {
  const size_t n = logits.size();
  std::vector<double> p(n);
  const double max = *std::max_element(logits.begin(), logits.end());
  for (size_t i = 0; i < n; ++i) p[i] = std::exp((logits[i] - max) / options.temperature);
  std::vector<double> sorted(p);
  std::sort(sorted.rbegin(), sorted.rend());
  if (options.top_k > 0 && static_cast<size_t>(options.top_k) < n) {
    for (double& x : p) x = x < sorted[options.top_k - 1] ? 0 : x;
  }
  auto normalise = [&] {
    double total = 0;
    for (double x : p) total += x;
    for (double& x : p) x /= total;
  };
  normalise();
  if (options.top_p < 1) {
    std::vector<size_t> order(n);
    for (size_t i = 0; i < n; ++i) order[i] = i;
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return p[a] > p[b]; });
    double before = 0;
    for (size_t i : order) {
      const double here = p[i];
      if (before >= options.top_p) p[i] = 0;
      before += here;
    }
  }
  const double largest = *std::max_element(p.begin(), p.end());
  for (double& x : p) x = x < options.min_p * largest ? 0 : x;
  normalise();
  return p;
}

TEST(SamplerTest, GreedyTakesTheLargestAndGivesBothLogprobs) {
  Sampler sampler;
  SamplingOptions options;
  options.temperature = 0;
  const auto logits = RandomLogits(1, 199, 1.0);
  const auto sampled = sampler.Sample(logits, options, 0, {});
  ASSERT_TRUE(sampled.ok());
  const auto best = std::max_element(logits.begin(), logits.end()) - logits.begin();
  EXPECT_EQ(sampled->token, best);
  EXPECT_EQ(sampled->logprob, 0.0f);
  options.temperature = 1;
  EXPECT_NEAR(sampled->raw_logprob, std::log(Reference(logits, options)[best]), 1e-6);
}

TEST(SamplerTest, FrequenciesAndLogprobsAgreeWithTheDefinition) {
  struct Case {
    double temperature;
    int32_t top_k;
    double top_p, min_p;
  };
  for (const Case& c : {Case{1, 0, 1, 0}, Case{0.7, 0, 1, 0}, Case{1.5, 5, 1, 0}, Case{1, 0, 0.8, 0},
                        Case{1, 0, 1, 0.1}, Case{1.2, 20, 0.9, 0.02}}) {
    SCOPED_TRACE(testing::Message() << c.temperature << " " << c.top_k << " " << c.top_p << " " << c.min_p);
    SamplingOptions options;
    options.temperature = c.temperature;
    options.top_k = c.top_k;
    options.top_p = c.top_p;
    options.min_p = c.min_p;
    options.seed = 1234;
    const auto logits = RandomLogits(7, 150, 1.5);
    const auto p = Reference(logits, options);
    SamplingOptions plain;
    const auto raw = Reference(logits, plain);
    std::vector<int> counts(logits.size());
    Sampler sampler;
    constexpr int kDraws = 20000;
    for (int i = 0; i < kDraws; ++i) {
      const auto sampled = sampler.Sample(logits, options, i, {});
      ASSERT_TRUE(sampled.ok());
      ASSERT_GT(p[sampled->token], 0) << "was filtered out";
      ASSERT_NEAR(sampled->logprob, std::log(p[sampled->token]), 2e-6);
      ASSERT_NEAR(sampled->raw_logprob, std::log(raw[sampled->token]), 2e-6);
      ++counts[sampled->token];
    }
    for (size_t i = 0; i < p.size(); ++i) {
      EXPECT_NEAR(counts[i], p[i] * kDraws, 5 * std::sqrt(p[i] * (1 - p[i]) * kDraws) + 1) << "token " << i;
    }
  }
}

TEST(SamplerTest, DependsOnSeedAndPositionAlone) {
  const auto logits = RandomLogits(3, 2048, 1.0);
  SamplingOptions options;
  options.seed = 5;
  Sampler fresh, used;
  for (int i = 0; i < 50; ++i) {
    SamplingOptions other = options;
    other.seed = i;
    other.top_k = i;
    (void)used.Sample(RandomLogits(i, 100 + i, 3.0), other, i, {{1, 2}});
    const auto a = fresh.Sample(logits, options, i, {}), b = used.Sample(logits, options, i, {});
    EXPECT_EQ(a->token, b->token);
    EXPECT_EQ(a->logprob, b->logprob);
    EXPECT_EQ(a->raw_logprob, b->raw_logprob);
  }
  std::set<int32_t> tokens;
  for (int i = 0; i < 50; ++i) tokens.insert(fresh.Sample(logits, options, i, {})->token);
  EXPECT_GT(tokens.size(), 25u);
}

TEST(SamplerTest, BannedTokensAreNotDrawn) {
  std::vector<float> logits(10, 0.0f);
  logits[3] = 50.0f;
  SamplingOptions options;
  Sampler sampler;
  for (int i = 0; i < 20; ++i) {
    const auto sampled = sampler.Sample(logits, options, i, {{3, 7, 1000, -1}});
    ASSERT_TRUE(sampled.ok());
    EXPECT_NE(sampled->token, 3);
    EXPECT_NE(sampled->token, 7);
    EXPECT_NEAR(sampled->logprob, -std::log(8.0), 1e-6);
    EXPECT_NEAR(sampled->raw_logprob, -50, 1e-4);
  }
}

TEST(SamplerTest, KeepsTiesAtTheEdgeOfTopK) {
  const std::vector<float> logits = {1, 2, 2, 2, 0};
  SamplingOptions options;
  options.top_k = 2;
  Sampler sampler;
  std::set<int32_t> seen;
  for (int i = 0; i < 200; ++i) seen.insert(sampler.Sample(logits, options, i, {})->token);
  EXPECT_THAT(seen, testing::ElementsAre(1, 2, 3));
}

TEST(SamplerTest, LogitsThatAreNoNumbersAreAnError) {
  SamplingOptions options;
  Sampler sampler;
  std::vector<float> logits(100, 0.0f);
  logits[77] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(sampler.Sample(logits, options, 4, {}).status().code(), absl::StatusCode::kInternal);
  logits[77] = std::numeric_limits<float>::infinity();
  EXPECT_EQ(sampler.Sample(logits, options, 4, {}).status().code(), absl::StatusCode::kInternal);
  logits[77] = -std::numeric_limits<float>::infinity();
  EXPECT_TRUE(sampler.Sample(logits, options, 4, {}).ok());
  const std::vector<float> two = {0.0f, 1.0f};
  EXPECT_EQ(sampler.Sample(two, options, 4, {{0, 1}}).status().code(), absl::StatusCode::kInternal);
}

TEST(WeightsTest, ExponentialIsAccurate) {
  std::vector<float> row;
  for (int i = 0; i < 5000; ++i) row.push_back(-0.0177f * static_cast<float>(i));
  RowWeights weights;
  ComputeWeights(row, 0.0f, 1.0f, weights);
  double total = 0;
  for (size_t i = 0; i < row.size(); ++i) {
    const double exact = std::exp(static_cast<double>(row[i]));
    ASSERT_NEAR(weights.weights[i], exact, row[i] > -87 ? 3e-7 * exact : 1e-37) << row[i];
    total += exact;
  }
  EXPECT_NEAR(weights.total, total, 1e-6 * total);
}

TEST(SamplingOptionsTest, NamesWhatIsOutOfRange) {
  v1::SamplingParams params;
  EXPECT_THAT(std::string(SamplingOptions::FromProto(params).status().message()), testing::HasSubstr("max_new_tokens"));
  params.set_max_new_tokens(4);
  ASSERT_TRUE(SamplingOptions::FromProto(params).ok());
  EXPECT_EQ(SamplingOptions::FromProto(params)->top_p, 1.0);
  params.set_top_p(1.5);
  EXPECT_THAT(std::string(SamplingOptions::FromProto(params).status().message()), testing::HasSubstr("top_p is 1.5"));
  params.set_top_p(1);
  params.set_temperature(std::numeric_limits<float>::quiet_NaN());
  EXPECT_FALSE(SamplingOptions::FromProto(params).ok());
  params.set_temperature(1);
  params.add_stop_strings("");
  EXPECT_FALSE(SamplingOptions::FromProto(params).ok());
}

}  // namespace
}  // namespace manta::gen
