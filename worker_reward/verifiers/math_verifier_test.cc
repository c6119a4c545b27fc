#include <fstream>

#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/shared_data.h"
#include "worker_reward/verifiers/answer_extraction.h"
#include "worker_reward/verifiers/math_answer.h"
#include "worker_reward/verifiers/verifier.h"

namespace manta::reward {
namespace {

using Json = nlohmann::json;

const Verifier& Math() {
  static const auto& verifier = *MakeVerifier("math", Json::object())->release();
  return verifier;
}

Deadline Soon() {
  return Deadline(absl::Now() + absl::Seconds(10));
}

bool Right(std::string_view response, std::string_view truth) {
  const absl::StatusOr<Score> score = Math().Verify({.response = response, .ground_truth = truth}, Soon());
  EXPECT_TRUE(score.ok()) << score.status();
  return score.ok() && score->reward == 1;
}

bool Same(std::string_view answer, std::string_view truth) {
  return Right("So \\boxed{" + std::string(answer) + "}", truth);
}

std::vector<Json> Lines(const std::filesystem::path& path) {
  std::vector<Json> rows;
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) rows.push_back(Json::parse(line));
  return rows;
}

TEST(ExtractionTest, TakesTheFinalAnswer) {
  auto any = [](std::string_view text) { return ExtractAnswer(text, AnswerForm::kAny).value_or("-"); };
  EXPECT_EQ(any("\\boxed{1} then \\boxed{\\frac{1}{2}}"), "\\frac{1}{2}");
  EXPECT_EQ(any("\\boxed{\\{1, 2\\}}"), "\\{1, 2\\}");
  EXPECT_EQ(any("\\boxed{3} cut off: \\boxed{4"), "3");
  EXPECT_EQ(any("steps 3 + 4\n#### 7"), "7");
  EXPECT_EQ(any("#### 7\nno: \\boxed{8}"), "8");
  EXPECT_EQ(any("\\boxed{8}\n#### 7 "), "7");
  EXPECT_EQ(any("The answer is 42. I am sure of 7 things."), "42");
  EXPECT_EQ(any("**Final Answer:** $\\frac{1}{2}$"), "\\frac{1}{2}");
  EXPECT_EQ(any("The answer is $18."), "$18");
  EXPECT_EQ(any("answer is\n\n12"), "12");
  EXPECT_EQ(any("She has 1,200 eggs, and -3.5 more"), "-3.5");
  EXPECT_EQ(any("it is 50%"), "50%");
  EXPECT_EQ(any("no number"), "-");
  EXPECT_EQ(any("<think>\\boxed{1}</think> it is 5"), "5");
  EXPECT_EQ(any("<think>\\boxed{1}</think>"), "-");
  EXPECT_EQ(ExtractAnswer("#### 5", AnswerForm::kBoxed), std::nullopt);
  EXPECT_EQ(ExtractAnswer("\\boxed{5}", AnswerForm::kHash), std::nullopt);
}

TEST(MathVerifierTest, Equal) {
  const std::pair<const char*, const char*> cases[] = {
      {"18", "18"},
      {"18.0", "18"},
      {"$18", "18"},
      {"18 dollars", "18"},
      {"\\$18.90", "18.9"},
      {"70,000", "70000"},
      {"10{,}080", "10,\\!080"},
      {"11,\\! 111,\\! 111,\\! 100", "11111111100"},
      {"0.5", "\\frac12"},
      {"1/2", "\\dfrac{1}{2}"},
      {".5", "\\frac{1}{2}"},
      {"-\\frac{1}{2}", "\\frac{-1}{2}"},
      {"\\frac{2}{4}", "\\tfrac{1}{2}"},
      {"50\\%", "50"},
      {"50%", "0.5"},
      {"0.5", "50\\%"},
      {"0.333333", "\\frac{1}{3}"},
      {"3.14159265", "\\pi"},
      {"\\sqrt{12}", "2\\sqrt3"},
      {"11\\sqrt2", "11\\sqrt{2}"},
      {"\\frac{\\sqrt{3}}{3}", "1/\\sqrt{3}"},
      {"1\\frac{4}{5}", "9/5"},
      {"1 4/5", "1.8"},
      {"90^\\circ", "90"},
      {"90\xC2\xB0", "90^{\\circ}"},
      {"5.4 \\text{ cents}", "5.4"},
      {"864 \\mbox{ inches}^2", "864"},
      {"15\\mbox{ cm}^2", "15"},
      {"15 cm^2", "15"},
      {"\\frac{270}7\\text{ degrees}", "\\frac{270}{7}"},
      {"x=5", "5"},
      {"5", "x = 5"},
      {"(3,\\pi/2)", "\\left( 3, \\frac{\\pi}{2} \\right)"},
      {"5, 3, 7", "3, 5, 7"},
      {"3, 5 and 7", "3,5,7"},
      {"1 + \\sqrt{19}, 1 - \\sqrt{19}", "1 \\pm \\sqrt{19}"},
      {"\\{-2, 1-\\sqrt5, 1+\\sqrt5\\}", "\\{1\\pm\\sqrt{5},-2\\}"},
      {"x = 1 \\text{ or } x = 2", "1, 2"},
      {"[-2,7]", "x \\in [-2,7]"},
      {"-2 \\le x \\le 7", "[-2, 7]"},
      {"x > 5", "(5,\\infty)"},
      {"x \\leq 0", "(-\\infty, 0]"},
      {"(3,\\infty) \\cup (-\\infty,2)", "(-\\infty, 2) \\cup (3, \\infty)"},
      {"(b+2)(a+5)", "(a+5)(b+2)"},
      {"ab+2a+5b+10", "(a+5)(b+2)"},
      {"6(r^2)-4r-24", "6r^2-4r-24"},
      {"q-p", "-p + q"},
      {"2x + 3 = y", "y = 2x + 3"},
      {"10x - 14y + 22z = -8", "5x - 7y + 11z + 4 = 0"},
      {"\\frac{\\cos x}{\\sin x}", "\\cot x"},
      {"\\text{Evelyn}", "Evelyn"},
      {"evelyn", "\\text{Evelyn}"},
      {"C", "\\text{(C)}"},
      {"(C)", "\\text{(C)}"},
      {"2516_8", "2516_{8}"},
      {"2516", "2516_8"},
      {"6 - 5i", "-5i+6"},
      {"\\begin{pmatrix}-1/3\\\\2/3\\end{pmatrix}", "\\begin{pmatrix} -\\frac13 \\\\ \\frac23 \\end{pmatrix}"},
      {"(-1/3, 2/3)", "\\begin{pmatrix} -1/3 \\\\ 2/3 \\end{pmatrix}"},
      {"2^{10}", "1024"},
      {"2^10", "1024"},
      {"6.72 \\times 10^{-5}", ".0000672"},
      {"5!", "120"},
      {"\\binom{5}{2}", "10"},
      {"\\sqrt[3]{-8}", "-2"},
      {"|-3|", "3"},
      {"\\log_2 8", "3"},
      {"\\sin^2 x + \\cos^2 x", "1"},
      {"\xE2\x88\x92"
       "5",
       "-5"},
      {"288\xCF\x80", "288 \\pi"},
      {"36.", "36"}};
  for (const auto& [answer, truth] : cases) EXPECT_TRUE(Same(answer, truth)) << answer << "  against  " << truth;
}

TEST(MathVerifierTest, Different) {
  const std::pair<const char*, const char*> cases[] = {
      {"19", "18"},
      {"18.01", "18"},
      {"70000.01", "70000"},
      {"-18", "18"},
      {"0.33", "\\frac13"},
      {"3.14", "\\pi"},
      {"\\sqrt{11}", "2\\sqrt3"},
      {"50%", "5"},
      {"(1,2)", "(2,1)"},
      {"[1,2]", "(1,2)"},
      {"(1,2]", "[1,2)"},
      {"1,2", "1,2,3"},
      {"1,1", "1,2"},
      {"x+1", "x+2"},
      {"2x", "2y"},
      {"y = 2x", "y = -2x"},
      {"y=2x+3", "y=2x+4"},
      {"\\text{even}", "\\text{odd}"},
      {"B", "\\text{(C)}"},
      {"52_7", "52_8"},
      {"25_8", "52_8"},
      {"x < 5", "(5,\\infty)"},
      {"\\begin{pmatrix}1\\\\2\\end{pmatrix}", "\\begin{pmatrix}1\\\\3\\end{pmatrix}"},
      {"\\begin{pmatrix}1&2\\end{pmatrix}", "\\begin{pmatrix}1\\\\2\\end{pmatrix}"},
      {"", "5"},
      {"5", "0"},
      {"1 + \\sqrt{19}", "1 \\pm \\sqrt{19}"},
      {"\\infty", "-\\infty"},
      {"\\frac{1}{0}", "5"},
      {"0/0", "0"},
      {"12", "1, 2"},
      {"i", "-i"},
      {"1000000", "1000001"}};
  for (const auto& [answer, truth] : cases) EXPECT_FALSE(Same(answer, truth)) << answer << "  against  " << truth;
}

TEST(MathVerifierTest, Sentences) {
  EXPECT_TRUE(Right("Therefore, the answer is therefore 18 eggs per day.", "18"));
  EXPECT_TRUE(Right("12 + 30 = 42", "42"));
  EXPECT_TRUE(Right("12+30=42", "42"));
  EXPECT_FALSE(Right("12+30=43", "42"));
  EXPECT_FALSE(Right("I do not know", "42"));
}

TEST(MathVerifierTest, HostileAnswersEndSoon) {
  std::string nested, fractions;
  for (int i = 0; i < 400; ++i) nested += "(", fractions += "\\frac{1}{";
  std::string list = "1";
  for (int i = 0; i < 900; ++i) list += ",1";
  const absl::Time begin = absl::Now();
  for (const std::string& answer :
       {nested, fractions, list, std::string(1900, '^'), std::string(1900, '-'), std::string("9^9^9^9^9^9"),
        std::string("(10^9)!!!!"), std::string("\\sqrt\\sqrt\\sqrt"), std::string("\\binom{1000}{500}"),
        std::string(1900, '{'), std::string("\\begin{pmatrix}"), std::string("\\frac"), std::string("2^{1000}")}) {
    EXPECT_FALSE(Right("#### " + answer, "5")) << answer.substr(0, 40);
    EXPECT_FALSE(Right("#### 5", answer)) << answer.substr(0, 40);
    (void)Right("#### " + answer, answer + " ");
  }
  EXPECT_LT(absl::Now() - begin, absl::Seconds(2));
}

TEST(MathVerifierTest, FailuresAreNoZeros) {
  EXPECT_EQ(Math().Verify({.response = "5", .ground_truth = " "}, Soon()).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Math().Verify({.response = "5", .ground_truth = "5"}, Deadline(absl::InfinitePast())).status().code(),
            absl::StatusCode::kDeadlineExceeded);
}

TEST(MathVerifierTest, OptionsAreChecked) {
  auto error = [](const Json& options) { return std::string(MakeVerifier("math", options).status().message()); };
  EXPECT_EQ(error({{"tolerence", 1}}),
            "verifier math has no option 'tolerence'; it has answer, correct, tolerance, wrong");
  EXPECT_EQ(error({{"answer", "last"}}), "verifier math: answer must be one of any, boxed, hash, found \"last\"");
  EXPECT_EQ(error({{"tolerance", 2}}), "verifier math: tolerance must be between 0 and 0.1, found 2");
  EXPECT_EQ(MakeVerifier("maths", Json::object()).status().message(),
            "there is no verifier 'maths'; there are format, math");
  const auto strict = MakeVerifier("math", {{"answer", "boxed"}, {"correct", 2}, {"wrong", -1}});
  ASSERT_TRUE(strict.ok());
  EXPECT_EQ((*strict)->Verify({.response = "5", .ground_truth = "5"}, Soon())->reward, -1);
  EXPECT_EQ((*strict)->Verify({.response = "\\boxed{5}", .ground_truth = "5"}, Soon())->reward, 2);
}

TEST(MathVerifierTest, Gsm8kSolutionsVerify) {
  MANTA_NEED_SHARED("data/gsm8k/test.jsonl");
  for (const char* part : {"train", "test"}) {
    int rows = 0;
    for (const Json& row : Lines(testing::SharedDir() / "data/gsm8k" / (std::string(part) + ".jsonl"))) {
      const std::string answer = row["answer"], number = answer.substr(answer.rfind("####") + 5);
      ASSERT_TRUE(Right(answer, number)) << answer;
      ASSERT_TRUE(Right("The answer is " + number + ".", answer)) << number;
      ASSERT_FALSE(Right(answer + "1", number)) << answer;
      ++rows;
    }
    EXPECT_GT(rows, 1000);
  }
}

TEST(MathVerifierTest, Math500SolutionsVerify) {
  MANTA_NEED_SHARED("data/math500/test.jsonl");
  int rows = 0, right = 0;
  std::vector<std::pair<std::string, MathAnswer>> parsed_answers;
  for (const Json& row : Lines(testing::SharedDir() / "data/math500/test.jsonl")) {
    const std::string answer = row["answer"];
    ++rows;
    if (Right(row["solution"].get<std::string>(), answer)) {
      ++right;
    } else {
      std::printf("not verified: %s against %s\n",
                  ExtractAnswer(row["solution"].get<std::string>(), AnswerForm::kAny).value_or("-").c_str(),
                  answer.c_str());
    }
    const MathAnswer parsed = ParseMathAnswer(answer);  // every answer is read, and agrees with itself as what it is
    EXPECT_TRUE(SameAnswer(parsed, ParseMathAnswer(answer), 0, [] { return false; })) << answer;
    if (parsed.kind == MathAnswer::Kind::kWords) {
      EXPECT_NE(answer.find("text"), std::string::npos) << answer;
    }
    parsed_answers.emplace_back(answer, parsed);
  }
  EXPECT_EQ(rows, 500);
  EXPECT_GE(right, 490);
  // No two that differ are taken for the same, but for their spelling (90 and 90^\\circ, -2,1 and 1,-2, 5 and x=5).
  int same = 0;
  for (size_t i = 0; i < parsed_answers.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      const auto& [a, parsed_a] = parsed_answers[i];
      const auto& [b, parsed_b] = parsed_answers[j];
      same += a != b && SameAnswer(parsed_a, parsed_b, 1e-6, [] { return false; }) ? 1 : 0;
    }
  }
  EXPECT_EQ(same, 33);
}

}  // namespace
}  // namespace manta::reward
