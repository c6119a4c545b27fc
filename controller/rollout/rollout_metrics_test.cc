#include "controller/rollout/rollout_metrics.h"

#include "gtest/gtest.h"

namespace manta::controller {
namespace {

Sample MakeSample(double reward, int prompt, int generated) {
  Sample sample;
  sample.tokens.assign(prompt + generated, 1);
  sample.token_mask.assign(prompt, 0.0f);
  sample.token_mask.insert(sample.token_mask.end(), generated, 1.0f);
  sample.generation_logprobs.assign(prompt + generated, -1.0f);
  sample.prompt_length = prompt;
  sample.reward = reward;
  return sample;
}

TEST(RolloutMetrics, FailedSamplesAreCountedNotAveraged) {
  std::vector<Sample> samples = {MakeSample(1, 2, 3), MakeSample(0, 2, 5), MakeSample(0, 2, 5)};
  samples[1].finish_reason = v1::FINISH_REASON_LENGTH;
  samples[2].status = absl::UnavailableError("gen-0 died");
  auto metrics = RolloutMetrics(samples);
  EXPECT_EQ(metrics["num_failed_samples"], 1);
  EXPECT_EQ(metrics["reward"], 0.5);
  EXPECT_EQ(metrics["mean_gen_tokens_per_sample"], 4);
  EXPECT_EQ(metrics["truncation_rate"], 0.5);
}

TEST(RolloutMetrics, EqualLogProbabilitiesShowNoMismatch) {
  std::vector<Sample> samples = {MakeSample(1, 2, 3)};
  std::vector<std::vector<float>> prev = {std::vector<float>(5, -1.0f)};
  auto metrics = MismatchMetrics(samples, prev);
  EXPECT_DOUBLE_EQ(metrics["token_mult_prob_error"], 1);
  EXPECT_DOUBLE_EQ(metrics["gen_kl_error"], 0);
  EXPECT_NEAR(metrics["js_divergence_error"], 0, 1e-15);
  prev[0].assign(5, -1.5f);
  metrics = MismatchMetrics(samples, prev);
  EXPECT_NEAR(metrics["token_mult_prob_error"], 1.6487212707, 1e-9);
  EXPECT_NEAR(metrics["gen_kl_error"], 0.1065306597, 1e-9);  // e^-0.5 - 1 + 0.5
}

}  // namespace
}  // namespace manta::controller
