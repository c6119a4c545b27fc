#include "worker_gen/sampling/stop.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace manta::gen {
namespace {

// Token t is the t-th piece.
class Pieces : public TextStream {
 public:
  explicit Pieces(std::vector<std::string> pieces) : pieces_(std::move(pieces)) {}
  std::string Append(int32_t token) override { return pieces_[token]; }

 private:
  std::vector<std::string> pieces_;
};

SamplingOptions Options(int32_t max_new_tokens) {
  SamplingOptions options;
  options.max_new_tokens = max_new_tokens;
  return options;
}

TEST(StopCheckerTest, EndsAtLengthEosOrStopToken) {
  SamplingOptions options = Options(3);
  options.stop_token_ids = {9};
  StopChecker length(options, {{2}}, nullptr);
  EXPECT_EQ(length.Append(5), v1::FINISH_REASON_UNSPECIFIED);
  EXPECT_EQ(length.Append(5), v1::FINISH_REASON_UNSPECIFIED);
  EXPECT_EQ(length.Append(5), v1::FINISH_REASON_LENGTH);
  EXPECT_EQ(StopChecker(options, {{2, 4}}, nullptr).Append(4), v1::FINISH_REASON_STOP);
  EXPECT_EQ(StopChecker(options, {{2}}, nullptr).Append(9), v1::FINISH_REASON_STOP);
  options.ignore_eos = true;
  EXPECT_EQ(StopChecker(options, {{2}}, nullptr).Append(2), v1::FINISH_REASON_UNSPECIFIED);
  EXPECT_EQ(StopChecker(options, {{2}}, nullptr).Append(9), v1::FINISH_REASON_STOP);
}

TEST(StopCheckerTest, BansStopTokensUntilTheMinimum) {
  SamplingOptions options = Options(8);
  options.min_new_tokens = 2;
  options.stop_token_ids = {9};
  StopChecker checker(options, {{2}}, nullptr);
  EXPECT_THAT(checker.Banned(0), testing::ElementsAre(2, 9));
  EXPECT_THAT(checker.Banned(1), testing::ElementsAre(2, 9));
  EXPECT_TRUE(checker.Banned(2).empty());
}

TEST(StopCheckerTest, FindsAStopStringAcrossTokens) {
  SamplingOptions options = Options(100);
  options.stop_strings = {"never", "END.", "ND"};
  StopChecker checker(options, {}, std::make_unique<Pieces>(std::vector<std::string>{"a E", "", "N", "D. b", "xx"}));
  EXPECT_EQ(checker.Append(4), v1::FINISH_REASON_UNSPECIFIED);
  EXPECT_EQ(checker.Append(0), v1::FINISH_REASON_UNSPECIFIED);
  EXPECT_EQ(checker.Append(1), v1::FINISH_REASON_UNSPECIFIED);
  EXPECT_EQ(checker.Append(2), v1::FINISH_REASON_UNSPECIFIED);
  EXPECT_EQ(checker.Append(3), v1::FINISH_REASON_STOP);
  EXPECT_EQ(checker.stop_string(), "ND");  // the one that was complete first
}

TEST(StopCheckerTest, AStopStringBeforeTheMinimumIsPassedOver) {
  SamplingOptions options = Options(100);
  options.stop_strings = {"ab"};
  options.min_new_tokens = 2;
  StopChecker checker(options, {}, std::make_unique<Pieces>(std::vector<std::string>{"ab", "b", "c"}));
  EXPECT_EQ(checker.Append(0), v1::FINISH_REASON_UNSPECIFIED);
  EXPECT_EQ(checker.Append(1), v1::FINISH_REASON_UNSPECIFIED);
  EXPECT_EQ(checker.Append(2), v1::FINISH_REASON_UNSPECIFIED);
  EXPECT_EQ(checker.stop_string(), "");
  EXPECT_EQ(checker.Append(0), v1::FINISH_REASON_STOP);
}

}  // namespace
}  // namespace manta::gen
