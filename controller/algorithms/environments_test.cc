#include "controller/algorithms/environments.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace manta::controller {
namespace {

using ::testing::HasSubstr;

config::Tree TreeWith(const std::string& env) {
  return config::TreeFromText(
             "grpo: {num_prompts_per_step: 8, num_generations_per_prompt: 4}\n"
             "policy: {model_name: m, train_global_batch_size: 32}\n"
             "data: {train: {dataset_name: ResponseDataset, data_path: t.jsonl, env_name: sums}}\n"
             "env: " +
             env + "\n")
      .value();
}

std::string Checked(const std::string& env) {
  const config::Tree tree = TreeWith(env);
  return std::string(CheckVerifiers(tree, config::ParseRunConfig(tree).value(), {"format", "math"}).message());
}

TEST(Environments, AnUnknownVerifierIsNamedWithItsLine) {
  EXPECT_EQ(Checked("{sums: {verifier: math}}"), "");
  EXPECT_THAT(Checked("{sums: {verifier: mth}}"), HasSubstr(":4: env.sums.verifier: there is no verifier 'mth'"));
  EXPECT_THAT(Checked("{sums: {verifier: mth}}"), HasSubstr("expected one of format, math"));
  EXPECT_THAT(Checked("{sums: {num_workers: 2}}"), HasSubstr(":4: env.sums: there is no verifier 'sums'"));
}

TEST(Environments, OnesThatNoDatasetNamesAreNotLookedAt) {
  EXPECT_EQ(Checked("{sums: {verifier: math}, code: {verifier: sandbox}}"), "");
}

TEST(Environments, ThreadsAreTheMostAskedForButNoMoreThanCores) {
  const auto threads = [](const std::string& env, int cores) {
    return RewardThreads(config::ParseRunConfig(TreeWith(env)).value(), cores);
  };
  EXPECT_EQ(threads("{sums: {verifier: math, num_workers: 3}, math: {num_workers: 2}}", 16), 3);
  EXPECT_EQ(threads("{sums: {verifier: math, num_workers: 3}}", 2), 2);
  EXPECT_EQ(threads("{sums: {verifier: math, num_workers: 1000}}", 1024), 256);
}

}  // namespace
}  // namespace manta::controller
