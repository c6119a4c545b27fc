#include "controller/algorithms/grpo_batch.h"

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

TEST(GrpoBatch, AnUnknownEstimatorIsRefused) {
  config::GrpoConfig config;
  config.adv_estimator = "psychic";
  GrpoBatch batch = PrepareGrpoBatch({MakeSample(0, 1, 2)}, config);
  EXPECT_EQ(ComputeAdvantages(batch, config, {}).code(), absl::StatusCode::kUnimplemented);
}

}  // namespace
}  // namespace manta::controller
