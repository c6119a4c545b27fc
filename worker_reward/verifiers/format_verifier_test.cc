#include <algorithm>

#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "worker_reward/verifiers/verifier.h"

namespace manta::reward {
namespace {

using Json = nlohmann::json;

absl::StatusOr<Score> Verify(const Json& options, std::string_view response) {
  const auto verifier = MakeVerifier("format", options);
  if (!verifier.ok()) return verifier.status();
  return (*verifier)->Verify({.response = response}, Deadline(absl::Now() + absl::Seconds(10)));
}

double Reward(const Json& options, std::string_view response) {
  const absl::StatusOr<Score> score = Verify(options, response);
  EXPECT_TRUE(score.ok()) << score.status();
  return score.ok() ? score->reward : -100;
}

TEST(FormatVerifierTest, Tags) {
  const Json none = Json::object();
  EXPECT_EQ(Reward(none, "<think>a\nb</think>\n<answer>5</answer>\n"), 1);
  EXPECT_EQ(Reward(none, "<think>a</think><answer>5</answer> and so"), 0);
  EXPECT_EQ(Reward(none, "well <think>a</think><answer>5</answer>"), 0);
  EXPECT_EQ(Reward(none, "<answer>5</answer><think>a</think>"), 0);
  EXPECT_EQ(Reward(none, "<think>a</think><answer> </answer>"), 0);
  EXPECT_EQ(Reward(none, "<think>a<think>b</think><answer>5</answer>"), 0);
  EXPECT_EQ(Reward(none, "<think>a</think><answer>5"), 0);
  EXPECT_EQ(Reward(none, ""), 0);
  EXPECT_EQ(Reward({{"tags", {"a"}}, {"correct", 0.5}}, " <a>x</a> "), 0.5);
}

TEST(FormatVerifierTest, Patterns) {
  EXPECT_EQ(Reward({{"pattern", "\\d+"}}, "123"), 1);
  EXPECT_EQ(Reward({{"pattern", "\\d+"}}, "123 "), 0);
  EXPECT_EQ(Reward({{"pattern", "a.b"}}, "a\nb"), 1);
  EXPECT_EQ(Reward({{"pattern", "\\d+"}, {"match", "search"}}, "a 1 b"), 1);
  EXPECT_EQ(Reward({{"pattern", "(?!x).*"}}, "xy"), 0);
  EXPECT_EQ(Reward({{"pattern", ".*"}}, "\xff"), 0);
}

TEST(FormatVerifierTest, RunawayPatternIsAnError) {
  const absl::StatusOr<Score> score = Verify({{"pattern", "(a+)+b"}}, std::string(60, 'a') + "c");
  EXPECT_TRUE(!score.ok() || score->reward == 0);  // PCRE2 may see that there is no b
  EXPECT_EQ(Verify({{"pattern", "(?:a|a)*(?:a|a)*[bc]\\z"}}, std::string(60, 'a') + "b!").status().code(),
            absl::StatusCode::kResourceExhausted);
}

TEST(FormatVerifierTest, OptionsAreChecked) {
  EXPECT_EQ(Verify({{"pattern", "("}}, "").status().message(),
            "verifier format: pattern, character 1: missing closing parenthesis");
  EXPECT_EQ(Verify({{"pattern", "a"}, {"tags", {"b"}}}, "").status().message(),
            "verifier format: give a pattern or tags, not both");
  EXPECT_EQ(Verify({{"tags", {"<think>"}}}, "").status().message(),
            "verifier format: '<think>' is no tag's name: write think, not <think>");
  EXPECT_EQ(Verify({{"tags", "think"}}, "").status().message(),
            "verifier format: tags must be a list of texts, found \"think\"");
  EXPECT_EQ(Verify({{"pattern", 5}}, "").status().message(), "verifier format: pattern must be text, found 5");
}

}  // namespace
}  // namespace manta::reward
