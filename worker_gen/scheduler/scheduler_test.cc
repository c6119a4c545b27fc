#include "worker_gen/scheduler/scheduler.h"

#include <algorithm>
#include <deque>
#include <map>

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

TEST(SchedulerTest, SamplesForkFromTheOneThatComesToThePromptsEnd) {
  const SequenceView sample = {.num_tokens = 6, .prompt_id = 7};
  const std::vector<SequenceView> waiting = {sample, sample, sample, {.num_tokens = 4}, sample};
  State state{.waiting = waiting, .num_free_blocks = 4};
  state.limits = {.max_num_seqs = 8, .max_batched_tokens = 6, .block_size = 4};
  // Two blocks for the first and one for each fork; the budget is spent by then, and nobody overtakes.
  EXPECT_THAT(Pairs(Schedule(state).admitted), ElementsAre(std::pair(0, 6), std::pair(1, 0), std::pair(2, 0)));
  state.num_free_blocks = 3;
  EXPECT_THAT(Pairs(Schedule(state).admitted), ElementsAre(std::pair(0, 6), std::pair(1, 0)));
  state.num_free_blocks = 100;
  state.limits.max_num_seqs = 2;
  EXPECT_THAT(Pairs(Schedule(state).admitted), ElementsAre(std::pair(0, 6), std::pair(1, 0)));
  state.limits.max_num_seqs = 8;
  state.limits.max_batched_tokens = 5;  // the first does not come to the end
  EXPECT_THAT(Pairs(Schedule(state).admitted), ElementsAre(std::pair(0, 5)));
  state.limits.max_batched_tokens = 64;
  EXPECT_THAT(Pairs(Schedule(state).admitted),
              ElementsAre(std::pair(0, 6), std::pair(1, 0), std::pair(2, 0), std::pair(3, 4), std::pair(4, 0)));
}

TEST(SchedulerTest, SamplesForkFromARunningOneAndFromAnEarlierCalls) {
  const std::vector<SequenceView> running = {{.num_tokens = 8, .num_computed = 4, .num_blocks = 1, .prompt_id = 7}};
  const std::vector<SequenceView> waiting = {{.num_tokens = 8, .prompt_id = 7},
                                             {.num_tokens = 5, .prompt_id = 9, .prompt_scheduled = true},
                                             {.num_tokens = 5, .prompt_id = 9}};
  State state{.running = running, .waiting = waiting, .num_free_blocks = 2};
  state.limits = {.max_num_seqs = 8, .max_batched_tokens = 4, .block_size = 4};
  const Decision decision = Schedule(state);
  EXPECT_THAT(Pairs(decision.running), ElementsAre(std::pair(0, 4)));
  EXPECT_THAT(Pairs(decision.admitted), ElementsAre(std::pair(0, 0), std::pair(1, 0)));
}

// Drives whole workloads through Schedule with a plain model of the cache, checking the promises of the header at each
// step and that every sequence ends.
struct Live {
  int prompt, target;  // tokens it has at the end
  int tokens, computed = 0;
  uint64_t prompt_id = 0;
  std::vector<int> table = {};

  int blocks() const { return static_cast<int>(table.size()); }
  uint64_t PromptId() const { return tokens == prompt ? prompt_id : 0; }
};

// Blocks with counts of their holders.
class Blocks {
 public:
  explicit Blocks(int count) : holders_(count) {}
  int num_free() const { return static_cast<int>(std::count(holders_.begin(), holders_.end(), 0)); }
  int NumReleasable(const Live& s) const {
    return static_cast<int>(
        std::count_if(s.table.begin(), s.table.end(), [&](int block) { return holders_[block] == 1; }));
  }
  void Grow(Live& s, int blocks) {
    while (s.blocks() < blocks) {
      const auto free = std::find(holders_.begin(), holders_.end(), 0);
      ASSERT_NE(free, holders_.end());
      s.table.push_back(static_cast<int>(free - holders_.begin()));
      ++*free;
    }
  }
  void Share(Live& s, const Live& from, int blocks) {
    s.table.assign(from.table.begin(), from.table.begin() + blocks);
    for (int block : s.table) ++holders_[block];
  }
  void Release(Live& s) {
    for (int block : s.table) --holders_[block];
    s.table.clear();
  }

 private:
  std::vector<int> holders_;
};

void RunWorkload(uint64_t seed, int& forks) {
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
    waiting.push_back({prompt, target, prompt, 0, static_cast<uint64_t>(i + 1)});
    while (i + 1 < num_sequences && random.NextBelow(2) == 0) {  // samples of the same prompt
      waiting.push_back(waiting.back());
      ++i;
    }
  }
  Blocks blocks(num_blocks);
  int finished = 0, idle_steps = 0;
  for (int step = 0; finished < num_sequences; ++step) {
    ASSERT_LT(step, 100000) << "no end in sight";
    std::vector<SequenceView> running_views, waiting_views;
    for (const Live& s : running)
      running_views.push_back({s.tokens, s.computed, s.blocks(), blocks.NumReleasable(s), 0, s.PromptId()});
    for (const Live& s : waiting) waiting_views.push_back({.num_tokens = s.tokens, .prompt_id = s.PromptId()});
    const State state{
        .running = running_views, .waiting = waiting_views, .num_free_blocks = blocks.num_free(), .limits = limits};
    const Decision decision = Schedule(state);

    ASSERT_TRUE(decision.preempted.empty() || decision.admitted.empty());
    int first_preempted = static_cast<int>(running.size());
    for (int index : decision.preempted) {
      ASSERT_EQ(index, first_preempted - 1) << "last in, first out";
      first_preempted = index;
      blocks.Release(running[index]);
    }
    int num_tokens = 0;
    std::map<uint64_t, Live> whole;  // by prompt, as it was before it got its next token
    auto apply = [&](Live& s, int tokens) {
      if (tokens == 0) {
        ASSERT_TRUE(whole.contains(s.PromptId())) << "nobody to fork from";
        blocks.Share(s, whole[s.PromptId()], s.tokens / limits.block_size);
        s.computed = s.tokens;
        ++forks;
      }
      ASSERT_LE(s.computed + tokens, s.tokens);
      num_tokens += tokens;
      s.computed += tokens;
      ASSERT_NO_FATAL_FAILURE(blocks.Grow(s, BlocksFor(s.computed, limits.block_size)));
      if (s.computed < s.tokens) return;
      if (s.PromptId() != 0) whole.emplace(s.PromptId(), s);
      s.tokens += 1;  // sampled
    };
    int previous = -1;
    for (const auto& chunk : decision.running) {
      ASSERT_GT(chunk.index, previous);
      previous = chunk.index;
      ASSERT_LT(chunk.index, first_preempted);
      ASSERT_GE(chunk.num_tokens, 1);
      ASSERT_NO_FATAL_FAILURE(apply(running[chunk.index], chunk.num_tokens));
    }
    // Whoever stays is only left out because the tokens or seats were spent.
    if (static_cast<int>(decision.running.size()) < first_preempted) {
      ASSERT_TRUE(num_tokens == limits.max_batched_tokens ||
                  static_cast<int>(decision.running.size()) == limits.max_num_seqs);
    }
    for (int i = static_cast<int>(running.size()) - 1; i >= first_preempted; --i) {
      Live back = running[i];
      back.computed = 0;
      waiting.push_front(back);
    }
    running.resize(first_preempted);
    for (size_t i = 0; i < decision.admitted.size(); ++i) {
      ASSERT_EQ(decision.admitted[i].index, static_cast<int>(i));
      running.push_back(waiting.front());
      waiting.pop_front();
      ASSERT_NO_FATAL_FAILURE(apply(running.back(), decision.admitted[i].num_tokens));
    }
    ASSERT_LE(num_tokens, limits.max_batched_tokens);
    ASSERT_LE(static_cast<int>(running.size()), limits.max_num_seqs);
    idle_steps = num_tokens == 0 ? idle_steps + 1 : 0;
    ASSERT_LE(idle_steps, 1) << "two steps in a row did nothing";
    for (size_t i = 0; i < running.size();) {
      if (running[i].tokens >= running[i].target) {
        blocks.Release(running[i]);
        running.erase(running.begin() + static_cast<int64_t>(i));
        ++finished;
      } else {
        ++i;
      }
    }
  }
  EXPECT_EQ(blocks.num_free(), num_blocks);
}

TEST(SchedulerTest, RandomWorkloadsKeepEveryPromise) {
  int forks = 0;
  for (uint64_t seed = 0; seed < 500 && !HasFatalFailure(); ++seed) RunWorkload(seed, forks);
  EXPECT_GT(forks, 500);
}

}  // namespace
}  // namespace manta::gen
