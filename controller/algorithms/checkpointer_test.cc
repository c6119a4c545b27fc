#include "controller/algorithms/checkpointer.h"

#include <unistd.h>

#include <fstream>
#include <set>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace manta::controller {
namespace {

namespace fs = std::filesystem;

class CheckpointerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    directory_ = fs::path(::testing::TempDir()) / absl::StrCat("checkpointer_test_", getpid());
    fs::remove_all(directory_);
  }
  void TearDown() override { fs::remove_all(directory_); }

  void Save(Checkpointer& checkpointer, int64_t step, std::optional<double> metric) {
    const auto policy = checkpointer.Begin(step);
    ASSERT_TRUE(policy.ok()) << policy.status();
    std::ofstream(*policy / "model") << step;
    const auto path = checkpointer.Commit({.step = step, .metric = metric}, "a: 1\n");
    ASSERT_TRUE(path.ok()) << path.status();
  }
  std::set<int64_t> Steps() const {
    std::set<int64_t> steps;
    for (const auto& entry : fs::directory_iterator(directory_)) {
      steps.insert(std::stoll(entry.path().filename().string().substr(5)));
    }
    return steps;
  }

  fs::path directory_;
};

TEST_F(CheckpointerTest, KeepsTheBestAndTheNewest) {
  Checkpointer checkpointer({.directory = directory_, .keep_top_k = 2, .higher_is_better = true});
  Save(checkpointer, 1, 0.5);
  Save(checkpointer, 2, 0.9);
  Save(checkpointer, 3, 0.7);
  Save(checkpointer, 4, 0.1);  // neither best, but newest
  EXPECT_EQ(Steps(), (std::set<int64_t>{2, 3, 4}));
  Save(checkpointer, 5, 0.7);  // ties with 3: the newer stays
  EXPECT_EQ(Steps(), (std::set<int64_t>{2, 5}));
}

TEST_F(CheckpointerTest, AFolderIsOneRunsAtATime) {
  std::optional<Checkpointer> first(std::in_place, Checkpointer::Options{.directory = directory_});
  EXPECT_TRUE(first->TakeFolder("logs/exp_001").ok());
  Checkpointer second({.directory = directory_});
  EXPECT_EQ(second.TakeFolder("logs/exp_002").message(),
            absl::StrCat("the run in logs/exp_001 writes its checkpoints to ", directory_.string(),
                         ": give this one a folder of its own, or wait for that one"));
  first.reset();
  EXPECT_TRUE(second.TakeFolder("logs/exp_002").ok());
}

TEST_F(CheckpointerTest, LowerIsBetterAndUnmeasuredIsWorst) {
  Checkpointer checkpointer({.directory = directory_, .keep_top_k = 1, .higher_is_better = false});
  Save(checkpointer, 1, 3.0);
  Save(checkpointer, 2, std::nullopt);
  Save(checkpointer, 3, std::nullopt);
  EXPECT_EQ(Steps(), (std::set<int64_t>{1, 3}));
}

TEST_F(CheckpointerTest, FindsTheLatestAndClearsWhatWasInterrupted) {
  Checkpointer checkpointer({.directory = directory_});
  EXPECT_FALSE(checkpointer.FindLatest().value().has_value());
  TrainingInfo info{.step = 7,
                    .consumed_samples = 56,
                    .epoch = 1,
                    .position = 8,
                    .data_seed = 42,
                    .weight_version = 7,
                    .metric = 0.25,
                    .metrics = {{"validation/accuracy", 0.25}}};
  ASSERT_TRUE(checkpointer.Begin(7).ok());
  ASSERT_TRUE(checkpointer.Commit(info, "").ok());
  ASSERT_TRUE(checkpointer.Begin(8).ok());  // never committed
  const auto found = checkpointer.FindLatest().value();
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(ToJson(found->info), ToJson(info));
  EXPECT_FALSE(fs::exists(directory_ / "tmp_step_8"));
}

TEST_F(CheckpointerTest, BrokenInfoNamesTheFile) {
  Checkpointer checkpointer({.directory = directory_});
  fs::create_directories(directory_ / "step_3");
  std::ofstream(directory_ / "step_3" / "training_info.json") << "{\"step\": 3}";
  const auto status = checkpointer.FindLatest().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("step_3/training_info.json"), absl::string_view::npos);
}

}  // namespace
}  // namespace manta::controller
