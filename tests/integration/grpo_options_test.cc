// Whole GRPO runs with what the quickstart does not use: dynamic sampling, Reinforce++, the packing algorithms.
#include <fstream>

#include "absl/strings/match.h"
#include "gtest/gtest.h"
#include "tests/integration/manta_run.h"

namespace manta::testing {
namespace {

TEST(GrpoOptionsTest, DynamicSamplingTrainsOnPromptsWhoseAnswersDiffer) {
  WorkFolder work;
  MantaRun run(kGrpoConfig,
               SmallGrpo({"grpo.max_num_steps=4", "grpo.use_dynamic_sampling=true", "grpo.batch_multiplier=1.5"}),
               work / "run");
  ASSERT_EQ(run.Wait().code, 0) << run.Output();
  const StepMetrics steps = run.Metrics();
  ASSERT_EQ(steps.size(), 4u);
  double batches = 0;
  for (const auto& [step, metrics] : steps) {
    batches += metrics.at("train/dynamic_sampling_num_gen_batches");
    EXPECT_GT(metrics.at("train/filtered_reward"), 0);
    EXPECT_LT(metrics.at("train/filtered_reward"), 1);
    EXPECT_EQ(metrics.at("train/global_valid_seqs"), 32);
    EXPECT_GE(metrics.at("train/dynamic_sampling_num_discarded_valid_samples"), 0);
    EXPECT_TRUE(metrics.contains("timing/train/dynamic_sampling"));
    EXPECT_GT(metrics.at("train/advantages/max"), 0);
  }
  EXPECT_GE(batches, 4);
}

TEST(GrpoOptionsTest, TheLimitOfDynamicSamplingEndsTheRun) {
  WorkFolder work;
  // The answers to a prompt are all the same.
  MantaRun run(kGrpoConfig,
               SmallGrpo({"grpo.max_num_steps=4", "grpo.use_dynamic_sampling=true",
                          "grpo.dynamic_sampling_max_gen_batches=2", "policy.generation.top_k=1"}),
               work / "run");
  EXPECT_EQ(run.Wait().code, 1);
  EXPECT_TRUE(absl::StrContains(run.Output(),
                                "step 1: grpo.use_dynamic_sampling: after 2 generation batches "
                                "(dynamic_sampling_max_gen_batches) only 0 of 16 prompts"))
      << run.Output();
}

TEST(GrpoOptionsTest, TheLastStepIsSavedWhereTheDataEndsEarly) {
  WorkFolder work;
  std::filesystem::create_directories(work / "run");
  std::ofstream data(work / "run" / "train.jsonl");
  std::ifstream all("assets/quickstart/data/grpo_train.jsonl");
  std::string line;
  for (int i = 0; i < 40 && std::getline(all, line); ++i) data << line << "\n";
  data.close();
  // Batches of four prompts, of which a step needs four that are worth training on.
  MantaRun run(kGrpoConfig,
               SmallGrpo({"grpo.max_num_steps=10", "grpo.max_num_epochs=1", "grpo.num_prompts_per_step=4",
                          "policy.train_global_batch_size=16", "policy.train_micro_batch_size=16",
                          "grpo.use_dynamic_sampling=true", "grpo.val_at_end=true",
                          absl::StrCat("data.train.data_path=", (work / "run" / "train.jsonl").string())}),
               work / "run");
  ASSERT_EQ(run.Wait().code, 0) << run.Output();
  EXPECT_TRUE(absl::StrContains(run.Output(), "the data came to its end after step ")) << run.Output();
  const StepMetrics steps = run.Metrics();
  ASSERT_FALSE(steps.empty());
  const int64_t last = steps.rbegin()->first;
  EXPECT_LT(last, 10);
  EXPECT_TRUE(steps.at(last).contains("validation/accuracy"));
  EXPECT_TRUE(std::filesystem::exists(work / "run" / "ckpt" / absl::StrCat("step_", last) / "training_info.json"));
}

TEST(GrpoOptionsTest, AGoodEnoughValidationEndsTheRun) {
  WorkFolder work;
  MantaRun run(kGrpoConfig,
               SmallGrpo({"grpo.max_num_steps=10", "grpo.val_period=2", "grpo.stop_at_validation_metric=accuracy",
                          "grpo.stop_at_validation_threshold=0.1", "checkpointing.metric_name=val:accuracy"}),
               work / "run");
  ASSERT_EQ(run.Wait().code, 0) << run.Output();
  EXPECT_TRUE(absl::StrContains(run.Output(), "reached grpo.stop_at_validation_threshold (0.1) after step 2"))
      << run.Output();
  EXPECT_EQ(run.Metrics().rbegin()->first, 2);
  EXPECT_TRUE(std::filesystem::exists(work / "run" / "ckpt" / "step_2" / "training_info.json"));
}

TEST(GrpoOptionsTest, ReinforcePlusPlusWithTheDivergenceInTheReward) {
  WorkFolder work;
  MantaRun run(
      kGrpoConfig,
      SmallGrpo({"grpo.max_num_steps=3", "grpo.adv_estimator.name=reinforce_plus_plus", "loss_fn.use_kl_in_reward=true",
                 "loss_fn.reference_policy_kl_penalty=0.05", "policy.generation.top_p=0.95"}),
      work / "run");
  ASSERT_EQ(run.Wait().code, 0) << run.Output();
  for (const auto& [step, metrics] : run.Metrics()) {
    EXPECT_NEAR(metrics.at("train/advantages/mean"), 0, 1e-6);
    EXPECT_EQ(metrics.at("train/kl_penalty"), 0);  // it is not in the loss
  }
}

TEST(GrpoOptionsTest, PackingAlgorithmsGiveTheSameLosses) {
  std::map<std::string, StepMetrics> of;
  for (const std::string algorithm :
       {"concatenative", "first_fit_decreasing", "first_fit_shuffle", "modified_first_fit_decreasing"}) {
    WorkFolder work;
    MantaRun run(kGrpoConfig,
                 SmallGrpo({"grpo.max_num_steps=1", absl::StrCat("policy.sequence_packing.algorithm=", algorithm),
                            "policy.sequence_packing.train_mb_tokens=60"}),
                 work / "run");
    ASSERT_EQ(run.Wait().code, 0) << run.Output();
    of[algorithm] = run.Metrics();
    EXPECT_NEAR(of[algorithm].at(1).at("train/loss"), of["concatenative"].at(1).at("train/loss"), 1e-5) << algorithm;
    EXPECT_NEAR(of[algorithm].at(1).at("train/grad_norm"), of["concatenative"].at(1).at("train/grad_norm"), 1e-4);
  }
}

}  // namespace
}  // namespace manta::testing
