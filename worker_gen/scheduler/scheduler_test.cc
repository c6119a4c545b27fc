#include "worker_gen/scheduler/scheduler.h"

#include <deque>
#include <numeric>

#include "common/base/random.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace manta::gen {
namespace {

using ::testing::ElementsAre;

std::vector<std::pair<int, int>> Pairs(const std::vector<ScheduledChunk>& chunks) {
  std::vector<std::pair<int, int>> pairs;
  for (const auto& chunk : chunks) pairs.emplace_back(chunk.index, chunk.num_tokens);
  return pairs;
}

TEST(SchedulerTest, DecodesFirstThenAdmitsAChunkOfThePrompt) {
  const std::vector<SequenceView> running = {{.num_tokens = 10, .num_computed = 9, .num_blocks = 3},
                                             {.num_tokens = 5, .num_computed = 4, .num_blocks = 2}};
  const std::vector<SequenceView> waiting = {{.num_tokens = 20}, {.num_tokens = 3}};
  const Decision decision = Schedule({.running = running,
                                      .waiting = waiting,
                                      .num_free_blocks = 100,
                                      .limits = {.max_num_seqs = 8, .max_batched_tokens = 12, .block_size = 4}});
  EXPECT_THAT(Pairs(decision.running), ElementsAre(std::pair(0, 1), std::pair(1, 1)));
  EXPECT_THAT(Pairs(decision.admitted), ElementsAre(std::pair(0, 10)));  // what the budget leaves
  EXPECT_TRUE(decision.preempted.empty());
}

TEST(SchedulerTest, PreemptsTheLastInAndAdmitsNobodyThen) {
  // All blocks are full: each needs one more, none is free.
  const SequenceView full = {.num_tokens = 9, .num_computed = 8, .num_blocks = 2, .num_releasable_blocks = 2};
  const std::vector<SequenceView> running = {full, full, full};
  const std::vector<SequenceView> waiting = {{.num_tokens = 1}};
  const Decision decision = Schedule({.running = running,
                                      .waiting = waiting,
                                      .num_free_blocks = 0,
                                      .limits = {.max_num_seqs = 8, .max_batched_tokens = 64, .block_size = 4}});
  EXPECT_THAT(decision.preempted, ElementsAre(2));
  EXPECT_THAT(Pairs(decision.running), ElementsAre(std::pair(0, 1), std::pair(1, 1)));
  EXPECT_TRUE(decision.admitted.empty());
}

TEST(SchedulerTest, CountsIdleCachedBlocksOnce) {
  // Five blocks are free, four of which are the cached prefix that this sequence is about to take.
  const std::vector<SequenceView> waiting = {
      {.num_tokens = 24, .num_computed = 16, .num_blocks = 4, .num_idle_blocks = 4}};
  State state{.waiting = waiting, .num_free_blocks = 5, .limits = {.block_size = 4}};
  EXPECT_TRUE(Schedule(state).admitted.empty());
  state.num_free_blocks = 6;
  EXPECT_THAT(Pairs(Schedule(state).admitted), ElementsAre(std::pair(0, 8)));
}

TEST(SchedulerTest, NobodyOvertakesInTheQueue) {
  const std::vector<SequenceView> waiting = {{.num_tokens = 100}, {.num_tokens = 1}};
  EXPECT_TRUE(Schedule({.waiting = waiting, .num_free_blocks = 3}).admitted.empty());
}

TEST(SchedulerTest, KeepsBlocksForTheRestOfAPromptThatIsBeingComputed) {
  const std::vector<SequenceView> running = {{.num_tokens = 40, .num_computed = 8, .num_blocks = 2}};
  const std::vector<SequenceView> waiting = {{.num_tokens = 1}};
  State state{.running = running, .waiting = waiting, .num_free_blocks = 8};
  state.limits = {.max_num_seqs = 8, .max_batched_tokens = 64, .block_size = 4};
  EXPECT_TRUE(Schedule(state).admitted.empty());
  state.num_free_blocks = 9;
  EXPECT_THAT(Pairs(Schedule(state).admitted), ElementsAre(std::pair(0, 1)));
}

TEST(SchedulerTest, ASecondCallFillsWhatTheFirstLeft) {
  const std::vector<SequenceView> waiting = {{.num_tokens = 8}, {.num_tokens = 8}};
  const Decision decision = Schedule({.waiting = waiting,
                                      .num_free_blocks = 10,
                                      .num_scheduled_seqs = 3,
                                      .num_scheduled_tokens = 20,
                                      .limits = {.max_num_seqs = 4, .max_batched_tokens = 64}});
  EXPECT_THAT(Pairs(decision.admitted), ElementsAre(std::pair(0, 8)));  // one seat was left
}

// Drives whole workloads through Schedule with a plain model of the cache, checking the promises of the header at each
// step and that every sequence ends.
struct Live {
  int prompt, target;  // tokens it has at the end
  int tokens, computed = 0, blocks = 0;
};

void RunWorkload(uint64_t seed) {
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  RandomStream random(seed);
  Limits limits{.max_num_seqs = static_cast<int32_t>(1 + random.NextBelow(8)),
                .max_batched_tokens = static_cast<int32_t>(1 + random.NextBelow(40)),
                .block_size = static_cast<int32_t>(1 + random.NextBelow(6))};
  const int num_blocks = 4 + static_cast<int>(random.NextBelow(30));
  const int capacity = num_blocks * limits.block_size;
  std::deque<Live> waiting;
  std::vector<Live> running;
  const int num_sequences = 1 + static_cast<int>(random.NextBelow(20));
  for (int i = 0; i < num_sequences; ++i) {
    const int target = 2 + static_cast<int>(random.NextBelow(capacity - 1));
    const int prompt = 1 + static_cast<int>(random.NextBelow(target - 1));
    waiting.push_back({prompt, target, prompt});
  }
  int free_blocks = num_blocks, finished = 0, idle_steps = 0;
  for (int step = 0; finished < num_sequences; ++step) {
    ASSERT_LT(step, 100000) << "no end in sight";
    std::vector<SequenceView> running_views, waiting_views;
    for (const Live& s : running) running_views.push_back({s.tokens, s.computed, s.blocks, s.blocks, 0});
    for (const Live& s : waiting) waiting_views.push_back({.num_tokens = s.tokens});
    const State state{
        .running = running_views, .waiting = waiting_views, .num_free_blocks = free_blocks, .limits = limits};
    const Decision decision = Schedule(state);

    ASSERT_TRUE(decision.preempted.empty() || decision.admitted.empty());
    int first_preempted = static_cast<int>(running.size());
    for (int index : decision.preempted) {
      ASSERT_EQ(index, first_preempted - 1) << "last in, first out";
      first_preempted = index;
      free_blocks += running[index].blocks;
    }
    int num_tokens = 0;
    auto apply = [&](Live& s, int tokens) {
      ASSERT_GE(tokens, 1);
      ASSERT_LE(s.computed + tokens, s.tokens);
      num_tokens += tokens;
      s.computed += tokens;
      const int blocks = BlocksFor(s.computed, limits.block_size);
      free_blocks -= blocks - s.blocks;
      s.blocks = blocks;
      if (s.computed == s.tokens) s.tokens += 1;  // sampled
    };
    int previous = -1;
    for (const auto& chunk : decision.running) {
      ASSERT_GT(chunk.index, previous);
      previous = chunk.index;
      ASSERT_LT(chunk.index, first_preempted);
      apply(running[chunk.index], chunk.num_tokens);
    }
    // Whoever stays is only left out because the tokens or seats were spent.
    if (static_cast<int>(decision.running.size()) < first_preempted) {
      ASSERT_TRUE(num_tokens == limits.max_batched_tokens ||
                  static_cast<int>(decision.running.size()) == limits.max_num_seqs);
    }
    for (int i = static_cast<int>(running.size()) - 1; i >= first_preempted; --i) {
      Live back = running[i];
      back.computed = back.blocks = 0;
      waiting.push_front(back);
    }
    running.resize(first_preempted);
    for (size_t i = 0; i < decision.admitted.size(); ++i) {
      ASSERT_EQ(decision.admitted[i].index, static_cast<int>(i));
      running.push_back(waiting.front());
      waiting.pop_front();
      apply(running.back(), decision.admitted[i].num_tokens);
    }
    ASSERT_LE(num_tokens, limits.max_batched_tokens);
    ASSERT_LE(static_cast<int>(running.size()), limits.max_num_seqs);
    ASSERT_GE(free_blocks, 0);
    idle_steps = num_tokens == 0 ? idle_steps + 1 : 0;
    ASSERT_LE(idle_steps, 1) << "two steps in a row did nothing";
    for (size_t i = 0; i < running.size();) {
      if (running[i].tokens >= running[i].target) {
        free_blocks += running[i].blocks;
        running.erase(running.begin() + static_cast<int64_t>(i));
        ++finished;
      } else {
        ++i;
      }
    }
  }
  EXPECT_EQ(free_blocks, num_blocks);
}

TEST(SchedulerTest, RandomWorkloadsKeepEveryPromise) {
  for (uint64_t seed = 0; seed < 500 && !HasFatalFailure(); ++seed) RunWorkload(seed);
}

}  // namespace
}  // namespace manta::gen
