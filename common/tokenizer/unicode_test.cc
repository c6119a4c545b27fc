#include "common/tokenizer/unicode.h"

#include "common/tokenizer/regex.h"
#include "common/tokenizer/unicode_normalizer.h"
#include "gtest/gtest.h"

namespace manta::tokenizer {
namespace {

constexpr char kBad[] = "\xEF\xBF\xBD";

std::string Lossy(std::string_view bytes) {
  std::string text;
  AppendLossyUtf8(bytes, &text);
  return text;
}

TEST(UnicodeTest, EveryCharacterGoesThereAndBack) {
  for (char32_t c = 0; c < 0x110000; c += c < 0x3000 ? 1 : 37) {
    if (c >= 0xD800 && c < 0xE000) continue;
    std::string text;
    AppendUtf8(c, &text);
    ASSERT_EQ(DecodeChar(text.data()).c, c);
    ASSERT_EQ(DecodeChar(text.data()).length, static_cast<int>(text.size()));
    ASSERT_EQ(DecodeCharBefore(text.data() + text.size()).c, c);
    ASSERT_EQ(ValidUtf8Prefix(text), text.size());
    ASSERT_EQ(CompleteUtf8Prefix(text.substr(0, text.size() - 1)), 0u);
  }
}

TEST(UnicodeTest, InvalidPiecesAreReplacedOneByOne) {
  const std::string bad = kBad;
  EXPECT_EQ(Lossy("a\xFFz"), "a" + bad + "z");
  EXPECT_EQ(Lossy("\xE2\x96"), bad) << "a piece that could have become a character is one";
  EXPECT_EQ(Lossy("\xF0\x9F\x98 \xC3"), bad + " " + bad);
  EXPECT_EQ(Lossy("\xED\xA0\x80"), bad + bad + bad) << "a surrogate";
  EXPECT_EQ(Lossy("\xC0\x80"), bad + bad) << "longer than need be";
  EXPECT_EQ(Lossy("\xF4\x90\x80\x80"), bad + bad + bad + bad) << "beyond U+10FFFF";
}

TEST(UnicodeTest, OnlyWhatCanBeCompletedIsHeldBack) {
  EXPECT_EQ(CompleteUtf8Prefix("ab\xE2\x96"), 2u);
  EXPECT_EQ(CompleteUtf8Prefix("ab\xE2\x28"), 4u);
  EXPECT_EQ(CompleteUtf8Prefix("\xED\xA0"), 2u);
  EXPECT_EQ(CompleteUtf8Prefix("\x80\x80\x80"), 3u);
  EXPECT_EQ(CompleteUtf8Prefix(""), 0u);
}

TEST(UnicodeTest, Classes) {
  const CharTable& chars = CharTable::Get();
  EXPECT_TRUE(chars[U'é'] & kLetter);
  EXPECT_TRUE(chars[U'Ⅷ'] & kNumber);
  EXPECT_TRUE(chars[0x85] & kSpace);
  EXPECT_FALSE(chars[0x180E] & kSpace);
  EXPECT_TRUE(chars[0x10D4A] & kLetter) << "of Unicode 16";
  EXPECT_FALSE(chars[0x301] & kNfcInert);
  EXPECT_TRUE(chars[U'中'] & kNfcInert);
}

TEST(UnicodeTest, Normalisation) {
  const auto nfc = MakeUnicodeNormalizer(NormalForm::kNfc);
  std::string out;
  EXPECT_FALSE(*nfc->Apply("plain, é 中文", &out));
  EXPECT_TRUE(*nfc->Apply("cafe\u0301, e\u0323\u0301!", &out));
  EXPECT_EQ(out, "café, ẹ\u0301!");
}

std::vector<Span> FindAll(std::string_view pattern, std::string_view text) {
  const auto regex = Regex::Compile(pattern);
  EXPECT_TRUE(regex.ok()) << regex.status();
  std::vector<Span> matches;
  EXPECT_TRUE(regex->FindAll(text, &matches).ok());
  return matches;
}

TEST(RegexTest, DialectIsOnigurumas) {
  EXPECT_EQ(FindAll(R"(\s)", "\u180e "), (std::vector<Span>{{3, 4}}));
  EXPECT_EQ(FindAll(R"(\h+)", "xfF0"), (std::vector<Span>{{1, 4}}));
  EXPECT_EQ(FindAll("^b", "a\nb"), (std::vector<Span>{{2, 3}}));
  EXPECT_EQ(FindAll("a.b", "a\nb").size(), 0u);
  EXPECT_EQ(FindAll("(?m:a.b)", "a\nb").size(), 1u);
  EXPECT_EQ(FindAll(R"([^\p{L}]+)", "\U00010d4a!"), (std::vector<Span>{{4, 5}}));
  EXPECT_EQ(FindAll("x*", "axb"), (std::vector<Span>{{0, 0}, {1, 2}, {3, 3}}));
  EXPECT_FALSE(Regex::Compile("[a&&b]").ok());
  EXPECT_FALSE(Regex::Compile("[a[b]]").ok());
  EXPECT_FALSE(Regex::Compile("[a").ok());
  EXPECT_FALSE(Regex::Compile("a\\").ok());
}

TEST(RegexTest, TooMuchBacktrackingIsAnError) {
  const auto regex = Regex::Compile("(x+x+)+[yz]");
  ASSERT_TRUE(regex.ok());
  std::vector<Span> matches;
  EXPECT_EQ(regex->FindAll(std::string(60, 'x'), &matches).code(), absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace manta::tokenizer
