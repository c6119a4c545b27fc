#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "common/base/file.h"
#include "common/metrics/crc32c.h"
#include "common/metrics/event_file.h"
#include "common/metrics/names.h"
#include "common/metrics/plot.h"
#include "common/metrics/run_logger.h"
#include "common/metrics/summary.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace manta::metrics {
namespace {

using ::testing::HasSubstr;

class RunLoggerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    dir_ = std::filesystem::temp_directory_path() / absl::StrCat("metrics_test.", getpid());
    std::filesystem::create_directories(dir_);
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }
  std::string Text(const char* name) { return ReadFile(dir_ / name).value(); }
  std::filesystem::path dir_;
};

TEST_F(RunLoggerTest, WritesAnObjectAStep) {
  auto logger = RunLogger::Open({.run_dir = dir_});
  ASSERT_TRUE(logger.ok()) << logger.status();
  ASSERT_TRUE((*logger)->Log(1, 7, {{"train/loss", 0.1}, {"train/reward", std::nan("")}, {"x", -HUGE_VAL}}).ok());
  EXPECT_THAT(Text("metrics.jsonl"), ::testing::StartsWith("{\"step\":1,\"time\":"));
  EXPECT_THAT(Text("metrics.jsonl"), ::testing::EndsWith(
      "\"weight_version\":7,\"train/loss\":0.1,\"train/reward\":\"NaN\",\"x\":\"-Infinity\"}\n"));
  auto records = ReadMetrics(dir_ / "metrics.jsonl");
  ASSERT_TRUE(records.ok());
  ASSERT_EQ(records->size(), 1u);
  EXPECT_EQ((*records)[0].weight_version, 7u);
  EXPECT_TRUE(std::isnan((*records)[0].values.at("train/reward")));
  EXPECT_NEAR((*records)[0].time, static_cast<double>(time(nullptr)), 5);
}

TEST_F(RunLoggerTest, ResumeDropsWhatLiesAfterTheRestoredStep) {
  {
    auto logger = RunLogger::Open({.run_dir = dir_});
    for (int step = 1; step <= 5; ++step) ASSERT_TRUE((*logger)->Log(step, 0, {{"train/loss", step}}).ok());
  }
  std::ofstream(dir_ / "metrics.jsonl", std::ios::app) << "{\"step\":6,\"ti";  // torn by a crash
  auto logger = RunLogger::Open({.run_dir = dir_, .restored = StepRecord{.step = 3}});
  ASSERT_TRUE(logger.ok()) << logger.status();
  EXPECT_EQ((*logger)->history().size(), 3u);
  ASSERT_TRUE((*logger)->Log(4, 0, {{"train/loss", 40}}).ok());
  auto records = ReadMetrics(dir_ / "metrics.jsonl");
  ASSERT_TRUE(records.ok()) << records.status();
  ASSERT_EQ(records->size(), 4u);
  EXPECT_EQ(records->back().values.at("train/loss"), 40);
}

TEST_F(RunLoggerTest, AResumedRunGoesOnWithTheLinesOfTheOneBefore) {
  const std::filesystem::path earlier = dir_ / "exp_001", run = dir_ / "exp_002";
  std::filesystem::create_directories(earlier);
  std::filesystem::create_directories(run);
  {
    auto logger = RunLogger::Open({.run_dir = earlier});
    for (int step : {0, 1, 2, 4, 5}) ASSERT_TRUE((*logger)->Log(step, 7, {{"train/loss", step}}).ok());
  }
  const std::string before = ReadFile(earlier / "metrics.jsonl").value();
  // Step 3 was saved, and its line was never written.
  auto logger = RunLogger::Open({.run_dir = run,
                                 .tensorboard = true,
                                 .restored = StepRecord{3, 99, 8, {{"train/loss", 3}}},
                                 .earlier_run = earlier});
  ASSERT_TRUE(logger.ok()) << logger.status();
  ASSERT_TRUE((*logger)->Log(4, 9, {{"train/loss", 40}}).ok());
  const auto records = ReadMetrics(run / "metrics.jsonl");
  ASSERT_TRUE(records.ok()) << records.status();
  ASSERT_EQ(records->size(), 5u);
  for (int64_t step = 0; step < 5; ++step) EXPECT_EQ((*records)[step].step, step);
  EXPECT_EQ((*records)[2].weight_version, 7u);
  EXPECT_EQ((*records)[3].time, 99);
  EXPECT_EQ((*records)[4].values.at("train/loss"), 40);
  EXPECT_EQ(ReadFile(earlier / "metrics.jsonl").value(), before);
  // TensorBoard is told the whole of it.
  for (const auto& file : std::filesystem::directory_iterator(run / "tb")) {
    const std::string events = ReadFile(file.path()).value();
    size_t scalars = 0;
    for (size_t at = events.find("train/loss"); at != std::string::npos; at = events.find("train/loss", at + 1)) ++scalars;
    EXPECT_EQ(scalars, 5u);
  }
}

TEST_F(RunLoggerTest, ABrokenLineInTheMiddleIsAnError) {
  std::ofstream(dir_ / "metrics.jsonl") << "{\"step\":1}\nnonsense\n{\"step\":2}\n";
  EXPECT_THAT(ReadMetrics(dir_ / "metrics.jsonl").status().message(), HasSubstr("metrics.jsonl:2"));
}

TEST(Crc32cTest, KnownValues) {
  EXPECT_EQ(Crc32c(""), 0u);
  EXPECT_EQ(Crc32c("123456789"), 0xe3069283u);
  EXPECT_EQ(Crc32c(std::string(32, '\0')), 0x8a9136aau);
}

// Reads the records back by the format's description.
TEST_F(RunLoggerTest, TensorBoardEventsParse) {
  {
    auto file = EventFile::Create(dir_ / "tb");
    ASSERT_TRUE(file.ok()) << file.status();
    ASSERT_TRUE((*file)->WriteScalars(300, 12.5, {{"train/loss", 0.25}}).ok());
    EXPECT_THAT((*file)->path().filename().string(), ::testing::StartsWith("events.out.tfevents."));
  }
  std::string bytes;
  for (const auto& entry : std::filesystem::directory_iterator(dir_ / "tb")) bytes = ReadFile(entry.path()).value();
  std::vector<std::string> records;
  for (size_t at = 0; at < bytes.size();) {
    uint64_t length = 0;
    uint32_t crc = 0;
    std::memcpy(&length, bytes.data() + at, 8);
    std::memcpy(&crc, bytes.data() + at + 8, 4);
    EXPECT_EQ(crc, MaskedCrc32c(std::string_view(bytes).substr(at, 8)));
    ASSERT_LE(at + 16 + length, bytes.size());
    records.push_back(bytes.substr(at + 12, length));
    std::memcpy(&crc, bytes.data() + at + 12 + length, 4);
    EXPECT_EQ(crc, MaskedCrc32c(records.back()));
    at += 16 + length;
  }
  ASSERT_EQ(records.size(), 2u);
  EXPECT_THAT(records[0], HasSubstr("brain.Event:2"));
  std::string expected("\x09\0\0\0\0\0\0\x29\x40\x10\xac\x02\x2a\x13\x0a\x11\x0a\x0atrain/loss\x15\0\0\x80\x3e", 33);
  EXPECT_EQ(records[1], expected);
}

TEST(PlotTest, TicksAreRoundAndInside) {
  EXPECT_EQ(RoundTicks(0, 1, 5), (std::vector<double>{0, 0.2, 0.4, 0.6000000000000001, 0.8, 1}));
  EXPECT_EQ(RoundTicks(3, 47, 5), (std::vector<double>{10, 20, 30, 40}));
  EXPECT_TRUE(RoundTicks(1, 1, 5).empty());
  EXPECT_LE(RoundTicks(-1e300, 1e300, 5).size(), 100u);
}

TEST(PlotTest, IsWellFormedWhateverTheNumbers) {
  std::vector<StepRecord> history;
  for (int step = 1; step <= 4; ++step) {
    history.push_back({step, 0, 0, {{"train/loss", step == 2 ? std::nan("") : 1.0 / step}, {"train/reward", 0.5}}});
  }
  const std::string svg = PlotHistory("a <run> & more", history);
  EXPECT_THAT(svg, HasSubstr("a &lt;run&gt; &amp; more"));
  EXPECT_THAT(svg, HasSubstr("train reward"));
  EXPECT_THAT(svg, ::testing::Not(HasSubstr("nan")));
  EXPECT_THAT(PlotHistory("t", {}), HasSubstr("no data"));
}

TEST(SummaryTest, ProgressLine) {
  EXPECT_EQ(ProgressLine(12, 60, 91, {{"train/loss", 0.12345}, {"train/reward", 0.5}, {"timing/train/total_step_time", 1.9}}),
            "step 12/60  loss 0.1235  reward 0.500  1.90 s/step  1:31 left");
  EXPECT_EQ(ProgressLine(3, 0, -1, {}), "step 3");
  EXPECT_EQ(FormatDuration(45), "45 s");
  EXPECT_EQ(FormatDuration(7510), "2:05:10");
  EXPECT_EQ(FormatDuration(3 * 86400 + 4 * 3600), "3 days 4 h");
  EXPECT_EQ(FormatDuration(std::nan("")), "?");
}

TEST(SummaryTest, TableKeepsFirstAndLast) {
  std::vector<StepRecord> history;
  for (int step = 1; step <= 100; ++step) history.push_back({step, 0, 0, {{"train/loss", 1.0 / step}}});
  const std::string table = HistoryTable(history, 5);
  EXPECT_EQ(std::count(table.begin(), table.end(), '\n'), 7);
  EXPECT_THAT(table, HasSubstr("step    loss\n----  ------\n   1  1.0000\n"));
  EXPECT_THAT(table, HasSubstr(" 100  0.0100\n"));
  EXPECT_THAT(HistoryTable({}), HasSubstr("no step"));
  // Validations are shown where there are any.
  for (size_t i = 0; i < history.size(); ++i) {
    if (history[i].step % 7 == 3) history[i].values[std::string(kAccuracy)] = static_cast<double>(history[i].step);
  }
  EXPECT_THAT(HistoryTable(history, 5), HasSubstr("val accuracy"));
}

TEST(NamesTest, TableKnowsItsNames) {
  EXPECT_TRUE(IsKnownMetric(kLoss));
  EXPECT_TRUE(IsKnownMetric("validation/accuracy"));
  EXPECT_FALSE(IsKnownMetric("trian/loss"));
}

}  // namespace
}  // namespace manta::metrics
