#include "common/tokenizer/scanner.h"

#include <random>
#include <string>
#include <vector>

#include "common/tokenizer/regex.h"
#include "gtest/gtest.h"

namespace manta::tokenizer {
namespace {

std::vector<Span> Scan(ScanFunction scan, const std::string& text) {
  std::vector<Span> spans;
  const char* const begin = text.data();
  const char* const end = begin + text.size();
  for (const char* p = begin; p < end;) {
    const char* next = scan(CharTable::Get(), p, end);
    if (next <= p) break;
    spans.push_back({static_cast<size_t>(p - begin), static_cast<size_t>(next - begin)});
    p = next;
  }
  return spans;
}

class ScannerTest : public ::testing::TestWithParam<std::string_view> {};

// The regex itself, run by PCRE2, is the reference.
TEST_P(ScannerTest, AgreesWithItsPattern) {
  const ScanFunction scan = FindScanner(GetParam());
  ASSERT_NE(scan, nullptr);
  const auto regex = Regex::Compile(GetParam());
  ASSERT_TRUE(regex.ok()) << regex.status();
  const std::vector<std::string> parts = {
      " ",      " ",  "  ", "\n",  "\r\n", "\t", "\u00a0",  "\u3000", "\u2028",     "\u0085",
      "\u180e", "a",  "Zz", "é",   "ж",    "中", "e\u0301", "\u0301", "1",          "23",
      "٣",      "½",  "Ⅷ",  "'",   "'s",   "'S", "'ſ",      "'ll",    "'lL",        "'re",
      "'VE",    "'d", "!",  "...", "—",    "😀",  "_",       "\u200d", "\U00010d4a", std::string(1, '\0'),
      "\x7f"};
  std::mt19937 random(7);
  for (int round = 0; round < 20000; ++round) {
    std::string text;
    for (int n = static_cast<int>(random() % 9); n >= 0; --n) text += parts[random() % parts.size()];
    std::vector<Span> want;
    ASSERT_TRUE(regex->FindAll(text, &want).ok());
    ASSERT_EQ(Scan(scan, text), want) << "text: " << text;
  }
}

INSTANTIATE_TEST_SUITE_P(All, ScannerTest, ::testing::Values(kGpt2Pattern, kLlama3Pattern, kQwen2Pattern));

TEST(ScannerTest, OtherPatternsHaveNone) {
  EXPECT_EQ(FindScanner(R"(\s+)"), nullptr);
}

}  // namespace
}  // namespace manta::tokenizer
