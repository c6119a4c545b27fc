#include "controller/algorithms/dynamic_sampling.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace manta::controller {
namespace {

using ::testing::HasSubstr;

config::GrpoConfig Config(int64_t prompts, int64_t batches) {
  config::GrpoConfig config;
  config.use_dynamic_sampling = true;
  config.num_prompts_per_step = prompts;
  config.num_generations_per_prompt = 2;
  config.dynamic_sampling_max_gen_batches = batches;
  return config;
}

// Two samples a group.
std::vector<Sample> Batch(const std::vector<double>& rewards) {
  std::vector<Sample> samples;
  for (size_t i = 0; i < rewards.size(); ++i) {
    Sample sample;
    sample.group = static_cast<int32_t>(i / 2);
    sample.index_in_group = static_cast<int32_t>(i % 2);
    sample.prompt_index = static_cast<int64_t>(i / 2);
    sample.tokens = {1, 2, 3};
    sample.token_mask = {0, 1, 1};
    sample.prompt_length = 1;
    sample.reward = rewards[i];
    samples.push_back(std::move(sample));
  }
  return samples;
}

TEST(DynamicSampling, DrawsUntilEnoughPromptsTellSomethingApart) {
  const config::GrpoConfig config = Config(2, 3);
  DynamicSampling sampling(config);
  sampling.Add(Batch({0, 0, 1, 0, 1, 1}));  // the second prompt's answers differ
  EXPECT_FALSE(sampling.complete());
  EXPECT_TRUE(sampling.CheckLimit().ok());
  sampling.Add(Batch({0, 1, 1, 0, 0, 0}));  // the first two
  ASSERT_TRUE(sampling.complete());
  const std::vector<Sample> used = sampling.Take();
  ASSERT_EQ(used.size(), 4u);
  EXPECT_EQ(used[0].prompt_index, 1);
  EXPECT_EQ(used[2].prompt_index, 0);
  for (size_t i = 0; i < used.size(); ++i) EXPECT_EQ(used[i].group, static_cast<int32_t>(i / 2));
  const auto metrics = sampling.Metrics();
  EXPECT_EQ(metrics.at("dynamic_sampling_num_gen_batches"), 2);
  EXPECT_EQ(metrics.at("dynamic_sampling_num_discarded_valid_samples"), 2);
  EXPECT_DOUBLE_EQ(metrics.at("reward"), 5.0 / 12);  // of all that was generated
  EXPECT_DOUBLE_EQ(metrics.at("filtered_reward"), 0.5);
  EXPECT_FALSE(metrics.contains("total_num_tokens"));
}

TEST(DynamicSampling, TheLimitIsAnErrorThatSaysWhatIsThere) {
  const config::GrpoConfig config = Config(2, 2);
  DynamicSampling sampling(config);
  sampling.Add(Batch({0, 0, 1, 0}));
  EXPECT_TRUE(sampling.CheckLimit().ok());
  sampling.Add(Batch({0, 0, 1, 1}));
  const absl::Status status = sampling.CheckLimit();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("after 2 generation batches"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("only 1 of 4 prompts"));
}

TEST(DynamicSampling, FailedSamplesHaveNoSayButStay) {
  const config::GrpoConfig config = Config(1, 2);
  DynamicSampling sampling(config);
  auto samples = Batch({0, 1, 0, 1});
  samples[1].status = absl::UnavailableError("gen-0 died");  // the first prompt is left with one reward
  sampling.Add(std::move(samples));
  ASSERT_TRUE(sampling.complete());
  const auto used = sampling.Take();
  ASSERT_EQ(used.size(), 2u);
  EXPECT_EQ(used[0].prompt_index, 1);
}

TEST(DynamicSampling, RewardsAreComparedAfterScaling) {
  config::GrpoConfig config = Config(1, 2);
  config.reward_scaling.enabled = true;  // clamps to [0, 1]
  DynamicSampling sampling(config);
  sampling.Add(Batch({2, 3}));
  EXPECT_FALSE(sampling.complete());
}

}  // namespace
}  // namespace manta::controller
