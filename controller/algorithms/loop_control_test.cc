#include "controller/algorithms/loop_control.h"

#include "gtest/gtest.h"

namespace manta::controller {
namespace {

TEST(LoopControl, WhenToValidateAndSave) {
  EXPECT_TRUE(ValidateAfter(10, 100, 10, -1, false));
  EXPECT_FALSE(ValidateAfter(11, 100, 10, -1, false));
  EXPECT_FALSE(ValidateAfter(10, 100, 10, 20, false));
  EXPECT_FALSE(ValidateAfter(10, 10, 0, -1, false));
  EXPECT_TRUE(ValidateAfter(10, 10, 0, -1, true));
  config::CheckpointingConfig config;
  config.save_period = 4;
  EXPECT_TRUE(SaveAfter(4, 10, config));
  EXPECT_TRUE(SaveAfter(10, 10, config));
  EXPECT_FALSE(SaveAfter(5, 10, config));
  config.enabled = false;
  EXPECT_FALSE(SaveAfter(4, 10, config));
}

TEST(LoopControl, TheMetricOfACheckpoint) {
  config::CheckpointingConfig config;
  const std::map<std::string, double> logged = {{"validation/accuracy", 0.5}, {"train/loss", 2.0}};
  config.metric_name = "val:accuracy";
  EXPECT_EQ(CheckpointMetric(config, logged), 0.5);
  config.metric_name = "train:loss";
  EXPECT_EQ(CheckpointMetric(config, logged), 2.0);
  config.metric_name = "val:val_loss";
  EXPECT_FALSE(CheckpointMetric(config, logged).has_value());
  config.metric_name.reset();
  EXPECT_FALSE(CheckpointMetric(config, logged).has_value());
}

TEST(LoopControl, WhenAMeasureIsGoodEnough) {
  const std::map<std::string, double> logged = {{"validation/accuracy", 0.5}, {"train/accuracy", 1}};
  EXPECT_EQ((StopRule{.metric = std::nullopt, .threshold = 0}).Reached(logged), "");
  EXPECT_EQ((StopRule{.metric = "accuracy", .threshold = 0.6}).Reached(logged), "");
  EXPECT_EQ((StopRule{.metric = "pass_k", .threshold = 0}).Reached(logged), "");
  EXPECT_EQ((StopRule{.metric = "accuracy", .threshold = 0.5}).Reached(logged),
            "validation's accuracy of 0.5 reached grpo.stop_at_validation_threshold (0.5)");
}

}  // namespace
}  // namespace manta::controller
