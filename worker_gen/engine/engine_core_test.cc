#include "worker_gen/engine/engine_core.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker_gen/engine/fake_runner.h"

namespace manta::gen {
namespace {

struct Heard : RequestSink {
  void OnToken(const GeneratedToken& token) override {
    EXPECT_FALSE(finished);
    tokens.push_back(token.token);
    versions.push_back(token.weight_version);
  }
  void OnFinish(const absl::Status& s, const Completion& c) override {
    EXPECT_FALSE(finished) << "ends once";
    finished = true;
    status = s;
    completion = c;
  }
  std::vector<int32_t> tokens;
  std::vector<uint64_t> versions;
  bool finished = false;
  absl::Status status;
  Completion completion;
};

std::unique_ptr<Sequence> MakeSequence(uint64_t id, std::vector<int32_t> prompt, int32_t max_new,
                                       std::shared_ptr<RequestSink> sink, int32_t priority = 0) {
  GenerationRequest request;
  request.prompt = std::move(prompt);
  request.options.max_new_tokens = max_new;
  request.options.seed = id;
  request.priority = priority;
  request.sink = std::move(sink);
  return std::make_unique<Sequence>(id, std::move(request), absl::Span<const int32_t>());
}

EngineOptions Options(int32_t num_blocks, int32_t block_size) {
  EngineOptions options;
  options.num_blocks = num_blocks;
  options.limits.block_size = block_size;
  options.max_model_len = num_blocks * block_size;
  options.vocab_size = 1000;
  return options;
}

TEST(EngineCoreTest, SamplesOfOnePromptAdmittedTogetherComputeItOnce) {
  FakeRunner runner(64, 4, 1000);
  EngineCore core(Options(64, 4), &runner);
  std::vector<std::shared_ptr<Heard>> heard;
  const std::vector<int32_t> prompt = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
  for (uint64_t id = 0; id < 8; ++id) {
    heard.push_back(std::make_shared<Heard>());
    core.Add(MakeSequence(id, prompt, 3, heard.back()));
  }
  core.Step();
  EXPECT_EQ(runner.num_tokens, 10 + 7 * 2);
  while (core.has_work()) core.Step();
  for (uint64_t id = 0; id < 8; ++id) {
    EXPECT_EQ(heard[id]->tokens, runner.Expected(prompt, id, 3));
    EXPECT_EQ(heard[id]->completion.reason, v1::FINISH_REASON_LENGTH);
    EXPECT_EQ(heard[id]->completion.cached_prompt_tokens, id == 0 ? 0 : 8);
  }
  EXPECT_EQ(core.stats().num_blocks_free, 64);
  EXPECT_EQ(runner.num_steps, 3);
}

TEST(EngineCoreTest, CancelFreesBlocksBeforeTheNextStep) {
  FakeRunner runner(8, 4, 1000);
  EngineCore core(Options(8, 4), &runner);
  auto running = std::make_shared<Heard>(), waiting = std::make_shared<Heard>();
  core.Add(MakeSequence(1, std::vector<int32_t>(20, 1), 5, running));
  core.Add(MakeSequence(2, std::vector<int32_t>(20, 2), 5, waiting));
  core.Step();
  EXPECT_EQ(core.stats().num_running, 1);
  EXPECT_EQ(core.stats().num_blocks_free, 3);
  core.Cancel(1);
  EXPECT_EQ(core.stats().num_blocks_free, 8);
  EXPECT_EQ(running->status.code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(running->completion.reason, v1::FINISH_REASON_CANCELLED);
  core.Cancel(2);
  core.Cancel(2);
  EXPECT_TRUE(waiting->finished);
  EXPECT_FALSE(core.has_work());
}

TEST(EngineCoreTest, AFailedStepEndsThoseInItAndNothingOfItIsShared) {
  FakeRunner runner(16, 4, 1000);
  EngineOptions options = Options(16, 4);
  options.limits.max_num_seqs = 1;
  EngineCore core(options, &runner);
  auto first = std::make_shared<Heard>(), second = std::make_shared<Heard>();
  const std::vector<int32_t> prompt(9, 7);
  core.Add(MakeSequence(1, prompt, 2, first));
  core.Add(MakeSequence(2, prompt, 2, second));
  runner.error = absl::InternalError("no memory");
  core.Step();
  EXPECT_EQ(first->status.message(), "no memory");
  EXPECT_FALSE(second->finished);
  runner.error = absl::OkStatus();
  while (core.has_work()) core.Step();
  EXPECT_EQ(second->tokens, runner.Expected(prompt, 2, 2));
  EXPECT_EQ(second->completion.cached_prompt_tokens, 0);
  EXPECT_EQ(core.stats().num_blocks_free, 16);
}

TEST(EngineCoreTest, TokensCarryTheVersionThatMadeThem) {
  FakeRunner runner(16, 4, 1000);
  EngineCore core(Options(16, 4), &runner);
  auto heard = std::make_shared<Heard>();
  core.SetWeightVersion(3, false);
  core.Add(MakeSequence(1, {1, 2}, 4, heard));
  core.Step();
  core.Step();
  core.SetWeightVersion(4, false);
  while (core.has_work()) core.Step();
  EXPECT_THAT(heard->versions, testing::ElementsAre(3, 3, 4, 4));
}

TEST(EngineCoreTest, HigherPriorityIsAdmittedFirst) {
  FakeRunner runner(16, 4, 1000);
  EngineOptions options = Options(16, 4);
  options.limits.max_num_seqs = 1;
  EngineCore core(options, &runner);
  auto low = std::make_shared<Heard>(), high = std::make_shared<Heard>();
  core.Add(MakeSequence(1, {1}, 1, low, 0));
  core.Add(MakeSequence(2, {1}, 1, high, 5));
  core.Step();
  EXPECT_TRUE(high->finished);
  EXPECT_FALSE(low->finished);
}

// Whatever the limits, arrivals, cancellations, cache drops and weight updates: each sample is what it would be alone.
void RunMix(uint64_t seed) {
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  RandomStream random(seed);
  EngineOptions options =
      Options(static_cast<int32_t>(6 + random.NextBelow(20)), static_cast<int32_t>(1 + random.NextBelow(5)));
  options.limits.max_num_seqs = static_cast<int32_t>(1 + random.NextBelow(8));
  options.limits.max_batched_tokens = static_cast<int32_t>(1 + random.NextBelow(30));
  options.prefix_cache = random.NextBelow(4) != 0;
  FakeRunner runner(options.num_blocks, options.limits.block_size, 1000);
  EngineCore core(options, &runner);
  const int32_t capacity = options.num_blocks * options.limits.block_size;
  struct Case {
    std::vector<int32_t> prompt;
    int32_t num_new;
    bool cancelled = false;
    std::shared_ptr<Heard> heard = std::make_shared<Heard>();
  };
  std::vector<Case> cases(1 + random.NextBelow(15));
  for (Case& c : cases) {
    const int32_t length = 1 + static_cast<int32_t>(random.NextBelow(capacity - 1));
    const int32_t kind = static_cast<int32_t>(random.NextBelow(3));  // few kinds: shared prefixes
    for (int32_t t = 0; t < length; ++t) c.prompt.push_back(kind + t / 7);
    c.num_new = 1 + static_cast<int32_t>(random.NextBelow(capacity - length));
  }
  size_t next = 0;
  for (int step = 0; next < cases.size() || core.has_work(); ++step) {
    ASSERT_LT(step, 100000) << "no end in sight";
    while (next < cases.size() && random.NextBelow(3) != 0) {
      core.Add(MakeSequence(next, cases[next].prompt, cases[next].num_new, cases[next].heard));
      ++next;
    }
    if (random.NextBelow(10) == 0 && next > 0) {
      const uint64_t id = random.NextBelow(next);
      core.Cancel(id);
      cases[id].cancelled = true;
    }
    if (random.NextBelow(30) == 0) core.DropCache();
    if (random.NextBelow(30) == 0) core.SetWeightVersion(step, random.NextBelow(2) == 0);
    core.Step();
  }
  for (size_t i = 0; i < cases.size(); ++i) {
    const Case& c = cases[i];
    ASSERT_TRUE(c.heard->finished);
    const auto expected = runner.Expected(c.prompt, i, c.num_new);
    if (c.heard->status.ok()) {
      ASSERT_EQ(c.heard->tokens, expected) << "request " << i;
    } else {
      ASSERT_TRUE(c.cancelled) << c.heard->status;
      ASSERT_TRUE(std::equal(c.heard->tokens.begin(), c.heard->tokens.end(), expected.begin()));
    }
  }
  EXPECT_EQ(core.stats().num_blocks_free, options.num_blocks);
}

TEST(EngineCoreTest, RandomMixesGiveEachRequestItsOwn) {
  for (uint64_t seed = 0; seed < 300 && !HasFailure(); ++seed) RunMix(seed);
}

}  // namespace
}  // namespace manta::gen
