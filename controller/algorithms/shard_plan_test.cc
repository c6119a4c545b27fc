#include "controller/algorithms/shard_plan.h"

#include <set>

#include "common/base/random.h"
#include "gtest/gtest.h"

namespace manta::controller {
namespace {

TEST(ShardPlan, EverySequenceOnceAndWithinBounds) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    RandomStream random(seed);
    std::vector<int32_t> lengths(random.NextBelow(40));
    for (auto& length : lengths) length = 1 + static_cast<int32_t>(random.NextBelow(100));
    ShardOptions options{.num_ranks = 1 + static_cast<int>(random.NextBelow(4)),
                         .algorithm = static_cast<PackingAlgorithm>(random.NextBelow(4)),
                         .seed = seed};
    if (seed % 2 == 0) {
      options.max_tokens = 100 + static_cast<int64_t>(random.NextBelow(200));
    } else {
      options.max_sequences = 1 + static_cast<int64_t>(random.NextBelow(8));
    }
    std::vector<int64_t> groups(seed % 3 == 0 ? 0 : lengths.size());
    for (auto& group : groups) group = static_cast<int64_t>(random.NextBelow(5));
    const ShardPlan plan = PlanShards(lengths, options, groups).value();
    std::set<int> seen;
    ASSERT_EQ(static_cast<int>(plan.microbatches.size()), options.num_ranks);
    for (const auto& rank : plan.microbatches) {
      EXPECT_EQ(static_cast<int>(rank.size()), plan.num_microbatches());
      for (const auto& microbatch : rank) {
        int64_t tokens = 0;
        for (int sequence : microbatch) {
          EXPECT_TRUE(seen.insert(sequence).second);
          tokens += lengths[sequence];
        }
        if (options.max_tokens > 0) {
          EXPECT_LE(tokens, options.max_tokens);
        } else {
          EXPECT_LE(static_cast<int64_t>(microbatch.size()), options.max_sequences);
        }
      }
    }
    EXPECT_EQ(seen.size(), lengths.size());
  }
}

TEST(ShardPlan, TheAlgorithmSaysWhichSequencesShareAMicrobatch) {
  const auto plan = [](PackingAlgorithm algorithm, uint64_t seed = 0) {
    ShardOptions options{.num_ranks = 1, .max_tokens = 10, .algorithm = algorithm, .seed = seed};
    return PlanShards({3, 6, 4, 7}, options).value().microbatches[0];
  };
  using Microbatches = std::vector<std::vector<int>>;
  EXPECT_EQ(plan(PackingAlgorithm::kConcatenative), (Microbatches{{0, 1}, {2}, {3}}));
  EXPECT_EQ(plan(PackingAlgorithm::kFirstFitDecreasing), (Microbatches{{3, 0}, {1, 2}}));
  EXPECT_EQ(plan(PackingAlgorithm::kModifiedFirstFitDecreasing).size(), 2u);
  EXPECT_EQ(plan(PackingAlgorithm::kFirstFitShuffle, 5), plan(PackingAlgorithm::kFirstFitShuffle, 5));
}

TEST(ShardPlan, BalancesTokens) {
  std::vector<int32_t> lengths(64);
  for (size_t i = 0; i < lengths.size(); ++i) lengths[i] = 10 + static_cast<int32_t>(i);
  const auto plan = PlanShards(lengths, {.num_ranks = 4, .max_tokens = 512}).value();
  EXPECT_LT(TokenImbalance(plan, lengths), 0.02);
}

TEST(ShardPlan, KeepsGroupsTogether) {
  std::vector<int32_t> lengths;
  std::vector<int64_t> groups;
  for (int i = 0; i < 256; ++i) {
    lengths.push_back(8 + i * 7 % 3);
    groups.push_back(i / 16);
  }
  const auto plan = PlanShards(lengths, {.num_ranks = 2, .max_tokens = 160}, groups).value();
  EXPECT_LT(TokenImbalance(plan, lengths), 0.02);
  int split = 0;  // groups that are not all in one microbatch
  std::set<int64_t> seen;
  for (const auto& rank : plan.microbatches) {
    for (const auto& microbatch : rank) {
      std::set<int64_t> here;
      for (int sequence : microbatch) here.insert(groups[sequence]);
      for (int64_t group : here) split += seen.insert(group).second ? 0 : 1;
    }
  }
  EXPECT_LE(split, plan.num_microbatches() * 2);
  // One long sequence outweighs the rest: balance comes first.
  const std::vector<int32_t> uneven = {90, 10, 90, 10, 10, 10};
  const auto balanced = PlanShards(uneven, {.num_ranks = 2, .max_tokens = 200}, {0, 0, 0, 1, 1, 1}).value();
  EXPECT_LT(TokenImbalance(balanced, uneven), 0.01);
}

// Two groups whose samples are all alike cost what one does whose samples differ.
TEST(ShardPlan, BalancesWhatIsComputed) {
  const std::vector<int32_t> lengths(30, 10);
  std::vector<int64_t> groups;
  std::vector<int32_t> new_tokens;
  for (int i = 0; i < 30; ++i) {
    groups.push_back(i / 10);
    new_tokens.push_back(i < 20 ? (i % 10 == 0 ? 10 : 0) : 2);
  }
  const auto plan = PlanShards(lengths, {.num_ranks = 2, .max_tokens = 1000}, groups, new_tokens).value();
  EXPECT_EQ(plan.microbatches[0][0].size(), 10u);
  EXPECT_EQ(plan.microbatches[1][0].size(), 20u);
}

TEST(ShardPlan, TooLongSaysSo) {
  const auto status = PlanShards({5, 70}, {.num_ranks = 1, .max_tokens = 64}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("70 tokens"), absl::string_view::npos);
}

}  // namespace
}  // namespace manta::controller
