#include "worker_gen/engine/engine.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker_gen/engine/fake_runner.h"

namespace manta::gen {
namespace {

using ::testing::HasSubstr;

class Waiter : public RequestSink {
 public:
  void OnToken(const GeneratedToken& token) override {
    absl::MutexLock lock(&mutex_);
    tokens_.push_back(token.token);
  }
  void OnFinish(const absl::Status& status, const Completion&) override {
    absl::MutexLock lock(&mutex_);
    status_ = status;
    finished_ = true;
  }
  absl::Status Wait() {
    absl::MutexLock lock(&mutex_);
    if (!mutex_.AwaitWithTimeout(absl::Condition(&finished_), absl::Seconds(20)))
      return absl::DeadlineExceededError("the request did not end");
    return status_;
  }
  void WaitForTokens(size_t count) {
    absl::MutexLock lock(&mutex_);
    auto enough = [&] { return tokens_.size() >= count; };
    mutex_.AwaitWithTimeout(absl::Condition(&enough), absl::Seconds(20));
  }
  std::vector<int32_t> tokens() {
    absl::MutexLock lock(&mutex_);
    return tokens_;
  }

 private:
  absl::Mutex mutex_;
  std::vector<int32_t> tokens_;
  bool finished_ = false;
  absl::Status status_;
};

EngineOptions Options() {
  EngineOptions options;
  options.num_blocks = 64;
  options.limits.block_size = 4;
  options.max_model_len = 200;
  options.vocab_size = 1000;
  options.max_queued = 4;
  return options;
}

GenerationRequest Request(std::vector<int32_t> prompt, int32_t max_new, std::shared_ptr<RequestSink> sink) {
  GenerationRequest request;
  request.prompt = std::move(prompt);
  request.options.max_new_tokens = max_new;
  request.sink = std::move(sink);
  return request;
}

TEST(EngineTest, GeneratesAndCutsAtTheContext) {
  auto runner = std::make_unique<FakeRunner>(64, 4, 1000);
  const FakeRunner& fake = *runner;
  Engine engine(Options(), std::move(runner));
  auto a = std::make_shared<Waiter>(), b = std::make_shared<Waiter>();
  ASSERT_TRUE(engine.Submit(Request({1, 2, 3}, 10, a)).ok());
  ASSERT_TRUE(engine.Submit(Request(std::vector<int32_t>(190, 5), 100, b)).ok());
  EXPECT_TRUE(a->Wait().ok());
  EXPECT_TRUE(b->Wait().ok());
  EXPECT_EQ(a->tokens(), fake.Expected({1, 2, 3}, 0, 10));
  EXPECT_EQ(b->tokens().size(), 10u);
}

TEST(EngineTest, RefusesWhatCannotFitWithTheNumbers) {
  Engine engine(Options(), std::make_unique<FakeRunner>(64, 4, 1000));
  auto sink = std::make_shared<Waiter>();
  auto message = [&](std::vector<int32_t> prompt, int32_t max_new) {
    const auto result = engine.Submit(Request(std::move(prompt), max_new, sink));
    EXPECT_EQ(result.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(result.status().message());
  };
  EXPECT_THAT(message(std::vector<int32_t>(200, 1), 1), HasSubstr("200 tokens and the model takes 200"));
  EXPECT_THAT(message({}, 1), HasSubstr("no tokens"));
  EXPECT_THAT(message({1, 1000}, 1), HasSubstr("prompt token 1 is 1000"));
  EngineOptions small = Options();
  small.num_blocks = 10;
  Engine tight(small, std::make_unique<FakeRunner>(10, 4, 1000));
  EXPECT_TRUE(tight.Submit(Request(std::vector<int32_t>(30, 1), 11, sink)).ok());
  EXPECT_THAT(std::string(tight.Submit(Request(std::vector<int32_t>(30, 1), 12, sink)).status().message()),
              HasSubstr("10 blocks of 4"));
}

TEST(EngineTest, SamplesArriveTogetherAndComputeTheirPromptOnce) {
  auto runner = std::make_unique<FakeRunner>(64, 4, 1000);
  const FakeRunner& fake = *runner;
  EngineOptions options = Options();
  options.max_queued = 6;
  Engine engine(options, std::move(runner));
  std::vector<std::shared_ptr<Waiter>> sinks;
  std::vector<GenerationRequest> requests;
  for (uint64_t seed = 0; seed < 8; ++seed) {
    sinks.push_back(std::make_shared<Waiter>());
    requests.push_back(Request({1, 2, 3, 4, 5}, seed == 1 ? 1000 : 10, sinks.back()));
    requests.back().options.seed = seed;
    if (seed == 1) requests.back().options.stop_strings = {"needs a tokenizer"};
  }
  const auto ids = engine.SubmitSamples(std::move(requests));
  ASSERT_EQ(ids.size(), 8u);
  for (size_t i = 0; i < ids.size(); ++i) {
    if (i == 1 || i == 7) {  // each is refused by itself, here and for want of room
      EXPECT_EQ(ids[i].status().code(),
                i == 1 ? absl::StatusCode::kFailedPrecondition : absl::StatusCode::kResourceExhausted);
      continue;
    }
    ASSERT_TRUE(ids[i].ok()) << ids[i].status();
    EXPECT_TRUE(sinks[i]->Wait().ok());
    EXPECT_EQ(sinks[i]->tokens(), fake.Expected({1, 2, 3, 4, 5}, i, 10));
  }
  ASSERT_TRUE(engine.Pause(false).ok());
  EXPECT_EQ(fake.num_forks, 5);
  EXPECT_EQ(engine.stats().cached_prompt_tokens, 25u);
}

TEST(EngineTest, PauseStopsBetweenStepsAndAFullQueueRefuses) {
  Engine engine(Options(), std::make_unique<FakeRunner>(64, 4, 1000));
  ASSERT_TRUE(engine.Pause(false).ok());
  std::vector<std::shared_ptr<Waiter>> sinks;
  for (int i = 0; i < 4; ++i) {
    sinks.push_back(std::make_shared<Waiter>());
    ASSERT_TRUE(engine.Submit(Request({1, 2}, 3, sinks.back())).ok());
  }
  EXPECT_EQ(engine.stats().num_waiting, 4);
  EXPECT_EQ(engine.Submit(Request({1}, 3, sinks[0])).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(sinks[0]->tokens().empty());
  engine.Resume();
  for (auto& sink : sinks) EXPECT_TRUE(sink->Wait().ok());
  EXPECT_TRUE(engine.Submit(Request({1}, 3, std::make_shared<Waiter>())).ok());
}

TEST(EngineTest, PauseWithDropCacheGivesUpAllBlocksAndTheSampleIsStillTheSame) {
  auto runner = std::make_unique<FakeRunner>(64, 4, 1000);
  runner->before_step = [] { absl::SleepFor(absl::Milliseconds(1)); };
  const FakeRunner& fake = *runner;
  Engine engine(Options(), std::move(runner));
  auto sink = std::make_shared<Waiter>();
  ASSERT_TRUE(engine.Submit(Request({1, 2, 3}, 100, sink)).ok());
  sink->WaitForTokens(5);
  const EngineStats paused = *engine.Pause(true);
  EXPECT_EQ(paused.num_waiting, 1);
  EXPECT_EQ(paused.num_blocks_free, 64);
  engine.Resume();
  EXPECT_TRUE(sink->Wait().ok());
  EXPECT_EQ(sink->tokens(), fake.Expected({1, 2, 3}, 0, 100));
}

TEST(EngineTest, CancelAndEndTellEveryRequest) {
  auto runner = std::make_unique<FakeRunner>(64, 4, 1000);
  runner->before_step = [] { absl::SleepFor(absl::Milliseconds(1)); };
  auto cancelled = std::make_shared<Waiter>(), left = std::make_shared<Waiter>();
  {
    Engine engine(Options(), std::move(runner));
    const auto id = engine.Submit(Request({1, 2, 3}, 190, cancelled));
    ASSERT_TRUE(engine.Submit(Request({1, 2, 3}, 190, left)).ok());
    cancelled->WaitForTokens(2);
    engine.Cancel(*id);
    EXPECT_EQ(cancelled->Wait().code(), absl::StatusCode::kCancelled);
  }
  EXPECT_EQ(left->Wait().code(), absl::StatusCode::kCancelled);
}

TEST(EngineTest, AFailedWeightUpdateKeepsTheVersion) {
  Engine engine(Options(), std::make_unique<FakeRunner>(64, 4, 1000));
  EXPECT_TRUE(engine.UpdateWeights(7, false, [] { return absl::OkStatus(); }).ok());
  EXPECT_FALSE(engine.UpdateWeights(8, false, [] { return absl::DataLossError("checksum"); }).ok());
  EXPECT_FALSE(engine
                   .UpdateWeights(
                       8, false, [] { return absl::DataLossError("checksum"); }, [] { return false; })
                   .ok());
  EXPECT_EQ(engine.Pause(false)->weight_version, 7u);
}

TEST(EngineTest, AnUpdateThatFailsHalfWayLeavesNoVersionUntilOneSucceeds) {
  auto runner = std::make_unique<FakeRunner>(64, 4, 1000);
  runner->before_step = [] { absl::SleepFor(absl::Milliseconds(1)); };
  Engine engine(Options(), std::move(runner));
  const auto damaged = [] { return absl::UnavailableError("the trainer is gone"); };
  auto running = std::make_shared<Waiter>(), refused = std::make_shared<Waiter>(), after = std::make_shared<Waiter>();
  ASSERT_TRUE(engine.Submit(Request({1, 2, 3}, 190, running)).ok());
  running->WaitForTokens(2);
  EXPECT_FALSE(engine.UpdateWeights(8, false, damaged, [] { return true; }).ok());
  EXPECT_EQ(running->Wait().code(), absl::StatusCode::kUnavailable);
  const auto submitted = engine.Submit(Request({1, 2, 3}, 4, refused));
  EXPECT_TRUE(absl::IsUnavailable(submitted.status())) << submitted.status();
  EXPECT_NE(submitted.status().message().find("no version of the weights"), std::string::npos);
  EXPECT_NE(submitted.status().message().find("the trainer is gone"), std::string::npos);
  EXPECT_EQ(engine.Pause(false)->weight_version, 0u);
  engine.Resume();
  EXPECT_TRUE(engine.UpdateWeights(9, false, [] { return absl::OkStatus(); }).ok());
  ASSERT_TRUE(engine.Submit(Request({1, 2, 3}, 4, after)).ok());
  EXPECT_TRUE(after->Wait().ok());
}

}  // namespace
}  // namespace manta::gen
