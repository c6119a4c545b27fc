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
                                       std::shared_ptr<RequestSink> sink, int32_t priority = 0,
                                       uint64_t prompt_id = 0) {
  GenerationRequest request;
  request.prompt = std::move(prompt);
  request.options.max_new_tokens = max_new;
  request.options.seed = id;
  request.priority = priority;
  request.sink = std::move(sink);
  auto sequence = std::make_unique<Sequence>(id, std::move(request), absl::Span<const int32_t>());
  sequence->prompt_id = prompt_id;
  return sequence;
}

EngineOptions Options(int32_t num_blocks, int32_t block_size) {
  EngineOptions options;
  options.num_blocks = num_blocks;
  options.limits.block_size = block_size;
  options.max_model_len = num_blocks * block_size;
  options.vocab_size = 1000;
  return options;
}

// Samples of one prompt, submitted together.
std::vector<std::shared_ptr<Heard>> AddSamples(EngineCore& core, uint64_t first_id, int count,
                                               const std::vector<int32_t>& prompt, int32_t max_new) {
  std::vector<std::shared_ptr<Heard>> heard;
  for (uint64_t id = first_id; id < first_id + count; ++id) {
    heard.push_back(std::make_shared<Heard>());
    core.Add(MakeSequence(id, prompt, max_new, heard.back(), 0, first_id));
  }
  return heard;
}

void ExpectTheirOwn(const FakeRunner& runner, const std::vector<std::shared_ptr<Heard>>& heard, uint64_t first_id,
                    const std::vector<int32_t>& prompt, int32_t max_new) {
  for (size_t i = 0; i < heard.size(); ++i) {
    EXPECT_TRUE(heard[i]->status.ok()) << heard[i]->status;
    EXPECT_EQ(heard[i]->tokens, runner.Expected(prompt, first_id + i, max_new)) << "sample " << i;
  }
}

TEST(EngineCoreTest, SamplesOfOnePromptComputeItOnce) {
  for (const bool prefix_cache : {true, false}) {
    for (const int32_t length : {1, 3, 4, 8, 10}) {  // full blocks, and ones filled in part
      SCOPED_TRACE(length);
      FakeRunner runner(64, 4, 1000);
      EngineOptions options = Options(64, 4);
      options.prefix_cache = prefix_cache;
      EngineCore core(options, &runner);
      std::vector<int32_t> prompt(length);
      for (int32_t t = 0; t < length; ++t) prompt[t] = t;
      const auto heard = AddSamples(core, 1, 8, prompt, 6);
      core.Step();
      EXPECT_EQ(runner.num_tokens, length);
      EXPECT_EQ(runner.num_forks, 7);
      EXPECT_EQ(core.stats().num_blocks_free, 64 - length / 4 - (length % 4 == 0 ? 0 : 8));
      EXPECT_EQ(core.stats().prompt_tokens, 8u * length);
      EXPECT_EQ(core.stats().cached_prompt_tokens, 7u * length);
      while (core.has_work()) core.Step();
      ExpectTheirOwn(runner, heard, 1, prompt, 6);
      EXPECT_EQ(runner.num_tokens, length + 8 * 5);
      EXPECT_EQ(runner.num_steps, 6);
      for (size_t i = 0; i < heard.size(); ++i)
        EXPECT_EQ(heard[i]->completion.cached_prompt_tokens, i == 0 ? 0 : length);
      EXPECT_EQ(core.stats().num_blocks_free, 64);
    }
  }
}

TEST(EngineCoreTest, SamplesForkInTheStepThatEndsALongPrompt) {
  FakeRunner runner(64, 4, 1000);
  EngineOptions options = Options(64, 4);
  options.limits.max_batched_tokens = 10;  // which the prompt's second chunk spends to the last
  EngineCore core(options, &runner);
  const std::vector<int32_t> prompt(20, 3), other(7, 5);
  const auto heard = AddSamples(core, 1, 3, prompt, 3), later = AddSamples(core, 10, 2, other, 3);
  core.Step();
  EXPECT_EQ(core.stats().num_running, 1);
  core.Step();
  EXPECT_EQ(core.stats().num_running, 3);
  EXPECT_EQ(runner.num_tokens, 20);
  core.Step();
  EXPECT_EQ(core.stats().num_running, 5);
  EXPECT_EQ(runner.num_tokens, 20 + 3 + 7);
  while (core.has_work()) core.Step();
  ExpectTheirOwn(runner, heard, 1, prompt, 3);
  ExpectTheirOwn(runner, later, 10, other, 3);
  EXPECT_EQ(runner.num_forks, 3);
}

TEST(EngineCoreTest, SamplesThatFindNoSeatOrBlockComeLater) {
  for (const bool seats : {true, false}) {
    FakeRunner runner(seats ? 32 : 4, 4, 1000);
    EngineOptions options = Options(seats ? 32 : 4, 4);
    if (seats) options.limits.max_num_seqs = 3;
    EngineCore core(options, &runner);
    const std::vector<int32_t> prompt = {1, 2, 3, 4, 5, 6};  // one block to share, one for each sample
    const auto heard = AddSamples(core, 1, 8, prompt, 2);
    core.Step();
    EXPECT_EQ(core.stats().num_running, 3);
    EXPECT_EQ(runner.num_forks, 2);
    while (core.has_work()) core.Step();
    ExpectTheirOwn(runner, heard, 1, prompt, 2);
    EXPECT_EQ(runner.num_forks, 2 + 2 + 1);
    EXPECT_EQ(core.stats().num_blocks_free, seats ? 32 : 4);
  }
}

TEST(EngineCoreTest, SamplesOutliveTheOneThatComputedThePrompt) {
  FakeRunner runner(32, 4, 1000);
  EngineCore core(Options(32, 4), &runner);
  const std::vector<int32_t> prompt = {1, 2, 3, 4, 5, 6};
  std::vector<std::shared_ptr<Heard>> heard;
  for (uint64_t id = 1; id <= 4; ++id) {  // the first ends in the step that forks
    heard.push_back(std::make_shared<Heard>());
    core.Add(MakeSequence(id, prompt, id == 1 ? 1 : 9, heard.back(), 0, 1));
  }
  core.Step();
  EXPECT_TRUE(heard[0]->finished);
  auto other = std::make_shared<Heard>();
  core.Add(MakeSequence(5, {9, 9, 9, 9, 9, 9}, 9, other));  // takes the blocks that became free
  core.Step();
  core.Cancel(2);
  while (core.has_work()) core.Step();
  EXPECT_EQ(heard[1]->tokens.size(), 2u);
  for (uint64_t id = 3; id <= 4; ++id) EXPECT_EQ(heard[id - 1]->tokens, runner.Expected(prompt, id, 9));
  EXPECT_EQ(other->tokens, runner.Expected({9, 9, 9, 9, 9, 9}, 5, 9));
}

TEST(EngineCoreTest, NobodyForksFromWhatOlderWeightsBegan) {
  for (const bool prefix_cache : {true, false}) {
    FakeRunner runner(32, 4, 1000);
    EngineOptions options = Options(32, 4);
    options.limits.max_batched_tokens = 8;
    options.prefix_cache = prefix_cache;
    EngineCore core(options, &runner);
    const std::vector<int32_t> prompt(10, 3);
    const auto heard = AddSamples(core, 1, 3, prompt, 3);
    core.Step();  // the first's first 8 tokens
    core.SetWeightVersion(1, /*keep_prefix_cache=*/false);
    core.Step();  // its last two, and six of the second's
    EXPECT_EQ(runner.num_tokens, 16);
    EXPECT_EQ(runner.num_forks, 0);
    while (core.has_work()) core.Step();
    EXPECT_EQ(runner.num_forks, 1);  // the third, from the second
    ExpectTheirOwn(runner, heard, 1, prompt, 3);
  }
}

TEST(EngineCoreTest, AFailedStepEndsForksToo) {
  FakeRunner runner(32, 4, 1000);
  EngineCore core(Options(32, 4), &runner);
  runner.error = absl::InternalError("no memory");
  const auto heard = AddSamples(core, 1, 3, {1, 2, 3}, 3);
  core.Step();
  for (const auto& h : heard) EXPECT_EQ(h->status.message(), "no memory");
  EXPECT_FALSE(core.has_work());
  EXPECT_EQ(core.stats().num_blocks_free, 32);
}

TEST(EngineCoreTest, RequestsThatBeginAlikeShareFullBlocksInOneStep) {
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
// Returns how many forked.
int64_t RunMix(uint64_t seed) {
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
    uint64_t prompt_id;
    int32_t num_new;
    bool cancelled = false;
    std::shared_ptr<Heard> heard = std::make_shared<Heard>();
  };
  std::vector<Case> cases(1 + random.NextBelow(15));
  for (size_t i = 0; i < cases.size(); ++i) {
    Case& c = cases[i];
    if (i > 0 && random.NextBelow(2) == 0) {  // another sample of the prompt before
      c.prompt = cases[i - 1].prompt;
      c.prompt_id = cases[i - 1].prompt_id;
      c.num_new = 1 + static_cast<int32_t>(random.NextBelow(capacity - c.prompt.size()));
      continue;
    }
    c.prompt_id = i + 1;
    const int32_t length = 1 + static_cast<int32_t>(random.NextBelow(capacity - 1));
    const int32_t kind = static_cast<int32_t>(random.NextBelow(3));  // few kinds: shared prefixes
    for (int32_t t = 0; t < length; ++t) c.prompt.push_back(kind + t / 7);
    c.num_new = 1 + static_cast<int32_t>(random.NextBelow(capacity - length));
  }
  size_t next = 0;
  for (int step = 0; next < cases.size() || core.has_work(); ++step) {
    if (step == 100000) ADD_FAILURE() << "no end in sight";
    if (testing::Test::HasFailure()) return 0;
    while (next < cases.size() && random.NextBelow(4) != 0) {
      const Case& c = cases[next];
      core.Add(MakeSequence(next, c.prompt, c.num_new, c.heard, 0, c.prompt_id));
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
    EXPECT_TRUE(c.heard->finished);
    const auto expected = runner.Expected(c.prompt, i, c.num_new);
    if (c.heard->status.ok()) {
      EXPECT_EQ(c.heard->tokens, expected) << "request " << i;
    } else {
      EXPECT_TRUE(c.cancelled) << c.heard->status;
      EXPECT_TRUE(std::equal(c.heard->tokens.begin(), c.heard->tokens.end(), expected.begin()));
    }
  }
  EXPECT_EQ(core.stats().num_blocks_free, options.num_blocks);
  return runner.num_forks;
}

TEST(EngineCoreTest, RandomMixesGiveEachRequestItsOwn) {
  int64_t forks = 0;
  for (uint64_t seed = 0; seed < 1000 && !HasFailure(); ++seed) forks += RunMix(seed);
  EXPECT_GT(forks, 500);  // the mixes are what they claim to be
}

}  // namespace
}  // namespace manta::gen
