#include "controller/algorithms/batch.h"

#include <numeric>

#include "gtest/gtest.h"

namespace manta::controller {
namespace {

struct Data {
  std::vector<std::vector<int32_t>> tokens;
  std::vector<std::vector<float>> masks;
  std::vector<Sequence> sequences;
};

Data MakeData(std::vector<int> lengths) {
  Data data;
  for (int length : lengths) {
    data.tokens.emplace_back(length);
    std::iota(data.tokens.back().begin(), data.tokens.back().end(), 100 * static_cast<int>(data.tokens.size()));
    data.masks.emplace_back(length, 1.0f);
  }
  for (size_t i = 0; i < lengths.size(); ++i) {
    data.sequences.push_back({.tokens = data.tokens[i], .token_mask = data.masks[i]});
  }
  return data;
}

TEST(Batch, CountsLeaveOutFirstTokensAndMaskedSamples) {
  Data data = MakeData({3, 5});
  data.sequences[1].sample_mask = 0;
  const GlobalCounts counts = CountValid(data.sequences);
  EXPECT_EQ(counts.valid_tokens, 2);
  EXPECT_EQ(counts.valid_sequences, 1);
}

TEST(Batch, NewTokensCountDistinctBeginnings) {
  Data data = MakeData({3, 3, 3, 2, 3});
  data.tokens[1] = {100, 101, 7};
  data.tokens[0] = data.tokens[2] = {100, 101, 9};
  data.tokens[3] = {100, 101};
  data.tokens[4] = {100, 101, 9};
  data.sequences[4].group = 1;
  EXPECT_EQ(NewTokens(data.sequences), (std::vector<int32_t>{1, 1, 0, 2, 3}));
}

TEST(Batch, UnpackUndoesPack) {
  Data data = MakeData({4, 9, 2, 7, 1});
  const auto plan = PlanShards(std::vector<int32_t>{4, 9, 2, 7, 1}, {.num_ranks = 2, .max_tokens = 10}).value();
  std::vector<std::vector<float>> rows(5);
  for (int rank = 0; rank < 2; ++rank) {
    const v1::PackedBatch batch = PackForRank(data.sequences, plan, rank);
    EXPECT_EQ(batch.microbatch_sizes_size(), plan.num_microbatches());
    EXPECT_TRUE(batch.advantages().empty());
    // Answer each token's own id.
    std::string answer;
    for (size_t i = 0; i < batch.tokens().size(); i += 4) {
      int32_t token;
      memcpy(&token, batch.tokens().data() + i, 4);
      const float value = static_cast<float>(token);
      answer.append(reinterpret_cast<const char*>(&value), 4);
    }
    ASSERT_TRUE(UnpackFromRank(answer, plan, rank, data.sequences, rows).ok());
    EXPECT_FALSE(UnpackFromRank(answer + "1234", plan, rank, data.sequences, rows).ok());
    EXPECT_FALSE(UnpackFromRank(answer.substr(4), plan, rank, data.sequences, rows).ok());
  }
  for (size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(rows[i], std::vector<float>(data.tokens[i].begin(), data.tokens[i].end()));
  }
}

}  // namespace
}  // namespace manta::controller
