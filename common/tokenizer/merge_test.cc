#include "common/tokenizer/merge.h"

#include <random>

#include "gtest/gtest.h"

namespace manta::tokenizer {
namespace {

// The definition, word for word: find the lowest rank, leftmost first, merge it, begin again.
std::vector<int32_t> Reference(const MergeTable& merges, std::vector<int32_t> symbols) {
  while (true) {
    size_t best = 0;
    Merge lowest{kNoRank, -1};
    for (size_t i = 0; i + 1 < symbols.size(); ++i) {
      const Merge merge = merges.Find(symbols[i], symbols[i + 1]);
      if (merge.rank < lowest.rank) {
        lowest = merge;
        best = i;
      }
    }
    if (lowest.rank == kNoRank) return symbols;
    symbols[best] = lowest.id;
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
}

TEST(MergeTest, ShortAndLongAgreeWithTheDefinition) {
  std::mt19937 random(3);
  for (int round = 0; round < 600; ++round) {
    // Four symbols to begin with, and merges of any two that came before.
    const int num_merges = static_cast<int>(random() % 30);
    MergeTable merges;
    merges.Reserve(static_cast<size_t>(num_merges));
    for (int i = 0; i < num_merges; ++i) {
      const auto any = [&] { return static_cast<int32_t>(random() % static_cast<uint32_t>(4 + i)); };
      const int32_t left = any(), right = any();
      if (merges.Find(left, right).rank == kNoRank) merges.Add(left, right, {static_cast<uint32_t>(i), 4 + i});
    }
    std::vector<int32_t> symbols(random() % 150);
    for (int32_t& symbol : symbols) symbol = static_cast<int32_t>(random() % 4);
    std::vector<int32_t> merged = {77};  // what stands before is not touched
    merged.insert(merged.end(), symbols.begin(), symbols.end());
    MergeSymbols(merges, 1, &merged);
    std::vector<int32_t> want = Reference(merges, symbols);
    want.insert(want.begin(), 77);
    ASSERT_EQ(merged, want) << "round " << round;
  }
}

TEST(MergeTest, ALongTextTakesNoLongTime) {
  MergeTable merges;
  merges.Reserve(2);
  merges.Add(0, 0, {0, 1});
  merges.Add(1, 1, {1, 2});
  std::vector<int32_t> symbols(1 << 18, 0);
  MergeSymbols(merges, 0, &symbols);
  EXPECT_EQ(symbols.size(), size_t{1} << 16);
}

}  // namespace
}  // namespace manta::tokenizer
