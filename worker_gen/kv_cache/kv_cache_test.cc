#include "worker_gen/kv_cache/kv_cache.h"

#include <map>
#include <set>

#include "common/base/random.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace manta::gen {
namespace {

std::vector<int32_t> Range(int32_t begin, int32_t end) {
  std::vector<int32_t> tokens;
  for (int32_t t = begin; t < end; ++t) tokens.push_back(t);
  return tokens;
}

// Admits, grows and publishes as the engine does for a sequence computed in one step.
BlockTable Compute(KvCache& cache, const std::vector<int32_t>& tokens) {
  BlockTable table = cache.Admit(tokens);
  cache.Grow(table, static_cast<int32_t>(tokens.size()));
  cache.Publish(table, tokens, static_cast<int32_t>(tokens.size()));
  return table;
}

TEST(KvCacheTest, SamplesOfOnePromptShareItsFullBlocks) {
  KvCache cache(10, 4, true);
  const auto prompt = Range(0, 10);
  BlockTable a = Compute(cache, prompt);
  BlockTable b = Compute(cache, prompt);
  EXPECT_EQ(a.blocks[0], b.blocks[0]);
  EXPECT_EQ(a.blocks[1], b.blocks[1]);
  EXPECT_NE(a.blocks[2], b.blocks[2]);  // partly filled: each its own
  EXPECT_EQ(cache.num_available(), 6);
  EXPECT_EQ(cache.NumReleasable(a), 1);
  cache.Release(a);
  EXPECT_EQ(cache.num_available(), 7);
  cache.Release(b);
  EXPECT_EQ(cache.num_available(), 10);
  EXPECT_EQ(cache.Match(prompt).num_blocks, 2);
  EXPECT_EQ(cache.Match(prompt).num_idle, 2);
}

TEST(KvCacheTest, AForkSharesFullBlocksAndHasATailOfItsOwn) {
  for (const bool prefix_cache : {true, false}) {
    KvCache cache(10, 4, prefix_cache);
    const auto prompt = Range(0, 10);
    BlockTable a = Compute(cache, prompt);
    BlockTable b = cache.Fork(a, 10), c = cache.Fork(a, 8), d = cache.Fork(a, 3);
    EXPECT_THAT(b.blocks, testing::ElementsAre(a.blocks[0], a.blocks[1], testing::Ne(a.blocks[2])));
    EXPECT_THAT(c.blocks, testing::ElementsAre(a.blocks[0], a.blocks[1]));
    EXPECT_THAT(d.blocks, testing::ElementsAre(testing::Ne(a.blocks[0])));
    EXPECT_EQ(cache.num_available(), 5);
    EXPECT_EQ(cache.NumReleasable(b), 1);
    cache.Release(a);
    EXPECT_EQ(cache.num_available(), 6);
    cache.Grow(b, 12);
    cache.Publish(b, Range(0, 12), 12);
    EXPECT_EQ(cache.Match(Range(0, 13)).num_blocks, prefix_cache ? 3 : 0);
    cache.Release(b);
    cache.Release(c);
    cache.Release(d);
    EXPECT_EQ(cache.num_available(), 10);
  }
}

TEST(KvCacheTest, LeavesTheLastTokenToCompute) {
  KvCache cache(10, 4, true);
  BlockTable a = Compute(cache, Range(0, 8));
  EXPECT_EQ(cache.Match(Range(0, 8)).num_blocks, 1);
  EXPECT_EQ(cache.Match(Range(0, 9)).num_blocks, 2);
  cache.Release(a);
}

TEST(KvCacheTest, SameTokensAfterAnotherPrefixAreNotTheSameBlock) {
  KvCache cache(10, 2, true);
  BlockTable a = Compute(cache, {1, 2, 7, 8, 9});
  EXPECT_EQ(cache.Match(std::vector<int32_t>{3, 4, 7, 8, 9}).num_blocks, 0);
  EXPECT_EQ(cache.Match(std::vector<int32_t>{7, 8, 9}).num_blocks, 0);
  EXPECT_EQ(cache.Match(std::vector<int32_t>{1, 2, 7, 9, 9}).num_blocks, 1);
  cache.Release(a);
}

TEST(KvCacheTest, EvictsWhatWasUsedLeastRecentlyLeavesFirst) {
  KvCache cache(4, 2, true);
  BlockTable a = Compute(cache, {1, 2, 3, 4});
  BlockTable b = Compute(cache, {5, 6, 7, 8});
  cache.Release(a);
  cache.Release(b);
  BlockTable c = Compute(cache, {9, 10});  // takes a's second block
  EXPECT_EQ(cache.Match(std::vector<int32_t>{1, 2, 3, 4, 0}).num_blocks, 1);
  EXPECT_EQ(cache.Match(std::vector<int32_t>{5, 6, 7, 8, 0}).num_blocks, 2);
  cache.Release(c);
}

TEST(KvCacheTest, PublishingWhatAnotherPublishedTakesItsBlock) {
  KvCache cache(10, 2, true);
  const std::vector<int32_t> tokens = {1, 2, 3, 4, 5};
  BlockTable a = cache.Admit(tokens), b = cache.Admit(tokens);
  cache.Grow(a, 5);
  cache.Grow(b, 5);
  EXPECT_EQ(cache.num_available(), 4);
  cache.Publish(a, tokens, 5);
  cache.Publish(b, tokens, 5);
  EXPECT_EQ(cache.num_available(), 6);
  EXPECT_EQ(a.blocks[1], b.blocks[1]);
  cache.Release(a);
  cache.Release(b);
}

TEST(KvCacheTest, NothingOfOlderWeightsIsMatchedAfterInvalidate) {
  KvCache cache(10, 2, true);
  const std::vector<int32_t> tokens = {1, 2, 3, 4, 5, 6, 7};
  BlockTable idle = Compute(cache, tokens);
  cache.Release(idle);
  BlockTable held = Compute(cache, {1, 2, 3});
  cache.Invalidate();
  EXPECT_EQ(cache.Match(tokens).num_blocks, 0);
  EXPECT_EQ(cache.num_available(), 8);
  cache.Grow(held, 6);
  cache.Publish(held, tokens, 6);  // its beginning was computed with the old weights
  EXPECT_EQ(cache.Match(tokens).num_blocks, 0);
  BlockTable fresh = Compute(cache, tokens);
  EXPECT_EQ(cache.Match(tokens).num_blocks, 3);
  cache.Release(held);
  cache.Release(fresh);
  EXPECT_EQ(cache.num_available(), 10);
}

TEST(KvCacheTest, WithoutPrefixCacheNothingIsShared) {
  KvCache cache(10, 2, false);
  BlockTable a = Compute(cache, {1, 2, 3});
  EXPECT_EQ(cache.Match(std::vector<int32_t>{1, 2, 3}).num_blocks, 0);
  cache.Release(a);
  EXPECT_EQ(cache.num_available(), 10);
  EXPECT_EQ(cache.num_cached(), 0);
}

// The reference: for every block, the tokens from the sequence's first to the block's last that were written under it.
// Whatever the cache does, a sequence must find in its blocks exactly its own prefix, and count must agree.
void RunAgainstReference(uint64_t seed, int& forks) {
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  RandomStream random(seed);
  const int32_t block_size = 1 + static_cast<int32_t>(random.NextBelow(4));
  const int32_t num_blocks = 4 + static_cast<int32_t>(random.NextBelow(20));
  const int32_t vocabulary = 1 + static_cast<int32_t>(random.NextBelow(3));  // few tokens: many shared prefixes
  KvCache cache(num_blocks, block_size, random.NextBelow(5) != 0);
  struct Sequence {
    std::vector<int32_t> tokens;
    int32_t computed = 0;
    int era = 0;
    BlockTable table;
  };
  std::vector<Sequence> live;
  std::map<BlockId, std::pair<int, std::vector<int32_t>>> content;  // era of the weights, prefix
  int era = 0;

  // Computes tokens [computed, end): every one of them is written into its slot.
  auto compute = [&](Sequence& s, int32_t end) {
    cache.Grow(s.table, end);
    cache.Publish(s.table, s.tokens, end);
    for (int32_t t = s.computed; t < end; ++t) {
      const BlockId block = s.table.blocks[t / block_size];
      std::vector<int32_t> prefix(s.tokens.begin(), s.tokens.begin() + t + 1);
      auto& slot = content[block];
      if (t % block_size == 0 && slot.second.size() > prefix.size()) {
        // Replaced by a block that another sequence has filled already: what is in it must begin like this.
        if (std::equal(prefix.begin(), prefix.end(), slot.second.begin()) && slot.first == s.era) continue;
      }
      if (slot.second.size() >= prefix.size() && slot.first == s.era &&
          std::equal(prefix.begin(), prefix.end(), slot.second.begin()))
        continue;
      slot = {s.era, prefix};
    }
    s.computed = end;
  };
  auto verify = [&] {
    std::map<BlockId, int> holders;
    for (const Sequence& s : live) {
      ASSERT_LE(s.computed, static_cast<int32_t>(s.table.blocks.size()) * block_size);
      for (size_t i = 0; i < s.table.blocks.size(); ++i) {
        const BlockId block = s.table.blocks[i];
        ++holders[block];
        const int32_t end = std::min<int32_t>(s.computed, static_cast<int32_t>(i + 1) * block_size);
        if (end <= static_cast<int32_t>(i) * block_size) continue;
        const auto& [block_era, prefix] = content[block];
        ASSERT_EQ(block_era, s.era);
        ASSERT_GE(static_cast<int32_t>(prefix.size()), end);
        ASSERT_TRUE(std::equal(s.tokens.begin(), s.tokens.begin() + end, prefix.begin())) << "block " << block;
      }
    }
    ASSERT_EQ(cache.num_available(), num_blocks - static_cast<int32_t>(holders.size()));
    for (const Sequence& s : live) {
      int32_t alone = 0;
      for (BlockId block : s.table.blocks) alone += holders[block] == 1;
      ASSERT_EQ(cache.NumReleasable(s.table), alone);
    }
  };

  for (int step = 0; step < 200; ++step) {
    const uint64_t action = random.NextBelow(20);
    if (action < 8) {  // a new sequence
      Sequence s;
      s.era = era;
      const int32_t length = 1 + static_cast<int32_t>(random.NextBelow(5 * block_size));
      for (int32_t t = 0; t < length; ++t) s.tokens.push_back(static_cast<int32_t>(random.NextBelow(vocabulary)));
      const KvCache::Prefix prefix = cache.Match(s.tokens);
      ASSERT_LT(prefix.num_blocks * block_size, length);
      const int32_t needed = (length + block_size - 1) / block_size - prefix.num_blocks + prefix.num_idle;
      if (needed > cache.num_available()) continue;
      const int32_t before = cache.num_available();
      s.table = cache.Admit(s.tokens);
      ASSERT_EQ(cache.num_available(), before - prefix.num_idle);
      s.computed = prefix.num_blocks * block_size;
      compute(s, s.computed + 1 + static_cast<int32_t>(random.NextBelow(length - s.computed)));
      live.push_back(std::move(s));
    } else if (action < 15 && !live.empty()) {  // goes on
      Sequence& s = live[random.NextBelow(live.size())];
      const int32_t more = 1 + static_cast<int32_t>(random.NextBelow(2 * block_size));
      while (static_cast<int32_t>(s.tokens.size()) < s.computed + more)
        s.tokens.push_back(static_cast<int32_t>(random.NextBelow(vocabulary)));
      const int32_t needed =
          (s.computed + more + block_size - 1) / block_size - static_cast<int32_t>(s.table.blocks.size());
      if (needed <= cache.num_available()) compute(s, s.computed + more);
    } else if (action < 17 && !live.empty()) {  // forks, from any of its tokens on
      const Sequence& s = live[random.NextBelow(live.size())];
      ASSERT_EQ(cache.IsCurrent(s.table), s.era == era);
      const int32_t length = 1 + static_cast<int32_t>(random.NextBelow(s.computed));
      const int32_t tail = length % block_size == 0 ? 0 : 1;
      if (s.era != era || tail > cache.num_available()) continue;
      const int32_t before = cache.num_available();
      Sequence fork;
      fork.era = era;
      fork.tokens.assign(s.tokens.begin(), s.tokens.begin() + length);
      fork.table = cache.Fork(s.table, length);
      fork.computed = length;
      ASSERT_EQ(cache.num_available(), before - tail);
      if (tail == 1) content[fork.table.blocks.back()] = content[s.table.blocks[length / block_size]];
      live.push_back(std::move(fork));
      ++forks;
    } else if (action < 19 && !live.empty()) {  // ends
      const size_t i = random.NextBelow(live.size());
      cache.Release(live[i].table);
      live.erase(live.begin() + static_cast<int64_t>(i));
    } else if (random.NextBelow(4) == 0) {
      cache.Invalidate();
      ++era;
    }
    ASSERT_NO_FATAL_FAILURE(verify());
  }
  for (Sequence& s : live) cache.Release(s.table);
  EXPECT_EQ(cache.num_available(), num_blocks);
}

TEST(KvCacheTest, AgreesWithTheReferenceModel) {
  int forks = 0;
  for (uint64_t seed = 0; seed < 300 && !HasFatalFailure(); ++seed) RunAgainstReference(seed, forks);
  EXPECT_GT(forks, 2000);
}

}  // namespace
}  // namespace manta::gen
