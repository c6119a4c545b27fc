#include "controller/data/dataset.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace manta::controller {
namespace {

using ::testing::HasSubstr;

config::DatasetConfig Named(std::string name) {
  config::DatasetConfig config;
  config.dataset_name = std::move(name);
  return config;
}

TEST(Dataset, Conversations) {
  auto config = Named("openai_format");
  config.system_prompt = "Be brief.";
  const auto dataset = ParseDataset(R"({"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho"}]}

{"messages": [{"role": "system", "content": "x"}, {"role": "user", "content": "hi"}]}
)",
                                    "d.jsonl", config);
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  ASSERT_EQ(dataset->rows.size(), 2u);
  EXPECT_EQ(dataset->rows[0].messages[0]["content"], "Be brief.");
  EXPECT_EQ(dataset->rows[1].messages[0]["content"], "x");
  EXPECT_EQ(dataset->rows[1].line, 3);
}

TEST(Dataset, ProblemsAndAnswers) {
  auto config = Named("ResponseDataset");
  config.prompt_template = "Solve: {}";
  config.repeat = 2;
  const auto dataset = ParseDataset(R"({"input": "1+1", "output": 2})", "d.jsonl", config);
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  ASSERT_EQ(dataset->rows.size(), 2u);
  EXPECT_EQ(dataset->rows[1].messages[0]["content"], "Solve: 1+1");
  EXPECT_EQ(dataset->rows[1].ground_truth, "2");
}

TEST(Dataset, Gsm8kTakesTheFinalAnswer) {
  const auto dataset = ParseDataset(R"({"question": "q", "answer": "so\n#### 1,234"})", "d.jsonl", Named("gsm8k"));
  EXPECT_EQ(dataset->rows[0].ground_truth, "1,234");
}

TEST(Dataset, ErrorsNameLineAndField) {
  const auto error = [](std::string text, std::string name) {
    return std::string(ParseDataset(text, "d.jsonl", Named(std::move(name))).status().message());
  };
  EXPECT_THAT(error("{\"input\": 1}\n", "ResponseDataset"), HasSubstr("d.jsonl:1: no field \"output\"; the row has \"input\""));
  EXPECT_THAT(error("\n[1]\n", "ResponseDataset"), HasSubstr("d.jsonl:2: is array"));
  EXPECT_THAT(error("{\"input\"\n", "ResponseDataset"), HasSubstr("d.jsonl:1: not JSON"));
  EXPECT_THAT(error("", "ResponseDataset"), HasSubstr("has no rows"));
  EXPECT_THAT(error(R"({"messages": []})", "openai_format"), HasSubstr("is empty"));
  EXPECT_THAT(error(R"({"messages": [{"content": "x"}]})", "openai_format"), HasSubstr("has no string \"role\""));
  EXPECT_THAT(error(R"({"messages": [{"role": "user"}]})", "openai_format"), HasSubstr("neither"));
}

}  // namespace
}  // namespace manta::controller
