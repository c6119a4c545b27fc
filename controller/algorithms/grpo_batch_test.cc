#include "controller/algorithms/grpo_batch.h"

#include <cmath>

#include "gtest/gtest.h"

namespace manta::controller {
namespace {

Sample MakeSample(int group, double reward, int generated, absl::Status status = absl::OkStatus()) {
  Sample sample;
  sample.group = group;
  sample.prompt_length = 2;
  sample.tokens.assign(2 + generated, 5);
  sample.token_mask = {0, 0};
  sample.token_mask.resize(sample.tokens.size(), 1.0f);
  sample.generation_logprobs.assign(sample.tokens.size(), -1.0f);
  sample.reward = reward;
  sample.status = std::move(status);
  return sample;
}

TEST(GrpoBatch, FailedSamplesAreMaskedAndNoPartOfABaseline) {
  config::GrpoConfig config;
  config.use_leave_one_out_baseline = false;
  config.normalize_rewards = false;
  GrpoBatch batch = PrepareGrpoBatch({MakeSample(0, 1, 2), MakeSample(0, 0, 3),
                                      MakeSample(0, 0, 0, absl::UnavailableError("gen-0 died"))},
                                     config);
  EXPECT_EQ(batch.sample_mask, (std::vector<float>{1, 1, 0}));
  EXPECT_EQ(batch.baselines.baseline[0], 0.5);  // of the two that did not fail
  ASSERT_TRUE(ComputeAdvantages(batch, config, {}).ok());
  EXPECT_EQ(batch.advantages[0], std::vector<float>(4, 0.5f));
  EXPECT_EQ(batch.advantages[1], std::vector<float>(5, -0.5f));
  const auto sequences = SequencesOf(batch, 0, 3);
  EXPECT_EQ(sequences[2].sample_mask, 0);
  EXPECT_EQ(CountValid(sequences).valid_tokens, 5);
}

TEST(GrpoBatch, TruncatedAnswersAreMaskedButCount) {
  config::GrpoConfig config;
  config.overlong_filtering = true;
  config.use_leave_one_out_baseline = false;
  auto truncated = MakeSample(0, 0, 3);
  truncated.finish_reason = v1::FINISH_REASON_LENGTH;
  const GrpoBatch batch = PrepareGrpoBatch({MakeSample(0, 1, 2), std::move(truncated)}, config);
  EXPECT_EQ(batch.sample_mask, (std::vector<float>{1, 0}));
  EXPECT_EQ(batch.baselines.baseline[0], 0.5);
}

TEST(GrpoBatch, SequencesOnWhichTheEnginesDisagreeAreMasked) {
  config::GrpoConfig config;
  config.seq_logprob_error_threshold = 1.5;
  GrpoBatch batch = PrepareGrpoBatch({MakeSample(0, 1, 2), MakeSample(0, 0, 2)}, config);
  batch.prev_logprobs = {std::vector<float>(4, -1.0f), std::vector<float>(4, -2.0f)};
  ASSERT_TRUE(ComputeAdvantages(batch, config, {}).ok());
  EXPECT_EQ(batch.sample_mask, (std::vector<float>{1, 0}));
  EXPECT_EQ(batch.metrics.at("num_masked_seqs"), 1);
}

// By hand: rewards less the mean of the group's valid samples, standardised over the tokens that are trained on.
TEST(GrpoBatch, ReinforcePlusPlusStandardisesOverTheBatchsTokens) {
  config::GrpoConfig config;
  config.adv_estimator = "reinforce_plus_plus";
  const auto batch = [&config](const config::LossConfig& loss) {
    GrpoBatch made = PrepareGrpoBatch({MakeSample(0, 1, 1), MakeSample(0, 0, 1),
                                       MakeSample(0, 0, 1, absl::UnavailableError("gen-0 died")), MakeSample(1, 1, 2)},
                                      config);
    made.prev_logprobs.assign(4, std::vector<float>(3, -1.0f));
    made.prev_logprobs[3].assign(4, -1.0f);
    made.reference_logprobs = made.prev_logprobs;
    made.reference_logprobs[0] = {-1, -1, -2};
    EXPECT_TRUE(ComputeAdvantages(made, config, loss).ok());
    return made;
  };
  // Tokens: 0.5, -0.5 and twice 0; the variance is 0.125.
  const GrpoBatch plain = batch({});
  EXPECT_NEAR(plain.advantages[0][2], 0.5 / std::sqrt(0.125), 1e-6);
  EXPECT_NEAR(plain.advantages[1][2], -0.5 / std::sqrt(0.125), 1e-6);
  EXPECT_NEAR(plain.advantages[3][2], 0, 1e-6);
  // k1 of the first token is 1: 0.5 - 0.1 * 1 of it, so that the mean is -0.025.
  config::LossConfig loss;
  loss.use_kl_in_reward = true;
  loss.reference_policy_kl_penalty = 0.1;
  loss.reference_policy_kl_type = "k1";
  const double mean = -0.025, variance = (0.4 * 0.4 + 0.5 * 0.5) / 4 - mean * mean;
  const GrpoBatch with_kl = batch(loss);
  EXPECT_NEAR(with_kl.advantages[0][2], (0.4 - mean) / std::sqrt(variance), 1e-5);
  EXPECT_NEAR(with_kl.advantages[3][3], (0 - mean) / std::sqrt(variance), 1e-5);
  config.minus_baseline = false;
  EXPECT_GT(batch({}).advantages[3][2], 0);
}

TEST(GrpoBatch, AnUnknownEstimatorIsRefused) {
  config::GrpoConfig config;
  config.adv_estimator = "psychic";
  GrpoBatch batch = PrepareGrpoBatch({MakeSample(0, 1, 2)}, config);
  EXPECT_EQ(ComputeAdvantages(batch, config, {}).code(), absl::StatusCode::kUnimplemented);
}

}  // namespace
}  // namespace manta::controller
