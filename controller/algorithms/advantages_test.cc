#include "controller/algorithms/advantages.h"

#include "common/base/random.h"
#include "controller/algorithms/packing.h"
#include "controller/algorithms/reward_shaping.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace manta::controller {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

TEST(PromptBaselinesTest, LeavesTheRowItselfOut) {
  const std::vector<int64_t> groups = {5, 5, 9, 5};
  const std::vector<double> rewards = {1, 2, 7, 6};
  const Baselines b = PromptBaselines(groups, rewards, {}, true);
  EXPECT_THAT(b.baseline, ElementsAre(4, 3.5, 7, 1.5));
  EXPECT_NEAR(b.std[0], 2 * std::sqrt(2.0), 1e-12);
  EXPECT_EQ(b.std[2], 0);
}

TEST(PromptBaselinesTest, EqualRewardsHaveNoSpread) {
  const std::vector<int64_t> groups(16, 1);
  for (float reward : {0.1f, 1.0f / 3, 12345.678f}) {
    for (bool leave_one_out : {false, true}) {
      const Baselines b = PromptBaselines(groups, std::vector<double>(16, reward), {}, leave_one_out);
      EXPECT_THAT(b.std, Each(0.0));
    }
  }
}

TEST(GdpoTest, EqualSumsGiveZeros) {
  const std::vector<int64_t> groups = {1, 1, 2, 2};
  const std::vector<std::vector<double>> components = {{1, 1, 1, 1}, {2, 2, 2, 2}};
  EXPECT_THAT(GdpoAdvantages(groups, components, {}, true, true), Each(0.0));
}

TEST(StandardizeMaskedTest, MeanZeroVarianceOneOverTheMask) {
  std::vector<double> values = {1, 2, 3, 400}, mask = {1, 1, 1, 0};
  StandardizeMasked(values, mask);
  EXPECT_NEAR(MaskedMean(values, mask), 0, 1e-7);
  EXPECT_NEAR(MaskedVariance(values, mask, false), 1, 1e-6);
}

TEST(RewardShapingTest, PenaltyGrowsThroughTheBuffer) {
  std::vector<double> rewards = {1, 1, 1, 1};
  ShapeOverlong(rewards, std::vector<int64_t>{10, 14, 17, 26}, 20, 6, 1.0);
  EXPECT_THAT(rewards, ElementsAre(1, 1, 0.5, -1));
}

TEST(RewardShapingTest, InformativePromptsStayWhole) {
  const std::vector<int64_t> groups = {1, 2, 1, 2, 3, 3};
  EXPECT_THAT(SelectInformativeRows(groups, std::vector<double>{0, 1, 1, 1, 0, 0.5}), ElementsAre(0, 2, 4, 5));
}

TEST(PackingTest, EverySequenceOnceAndNoBinTooFull) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    SCOPED_TRACE(seed);
    RandomStream random(seed);
    std::vector<int64_t> lengths(1 + random.NextBelow(60));
    for (int64_t& length : lengths) length = static_cast<int64_t>(1 + random.NextBelow(64));
    for (auto bins : {PackConcatenative(lengths, 64), PackFirstFitDecreasing(lengths, 64),
                      PackModifiedFirstFitDecreasing(lengths, 64), PackFirstFitShuffle(lengths, 64, seed)}) {
      ASSERT_TRUE(bins.ok());
      const auto wanted = static_cast<int64_t>(random.NextBelow(lengths.size()) + 1);
      ASSERT_TRUE(SpreadBins(*bins, wanted, 1).ok());
      EXPECT_GE(static_cast<int64_t>(bins->size()), wanted);
      std::vector<int> seen(lengths.size());
      for (const auto& bin : *bins) {
        int64_t load = 0;
        for (int32_t item : bin) {
          load += lengths[static_cast<size_t>(item)];
          ++seen[static_cast<size_t>(item)];
        }
        EXPECT_LE(load, 64);
        EXPECT_FALSE(bin.empty());
      }
      EXPECT_THAT(seen, Each(1));
    }
  }
}

TEST(PackingTest, NamesTheSequenceThatDoesNotFit) {
  const auto bins = PackFirstFitDecreasing(std::vector<int64_t>{3, 70}, 64);
  EXPECT_NE(bins.status().message().find("sequence 1 has 70"), std::string::npos);
}

}  // namespace
}  // namespace manta::controller
