#include "common/template/text.h"

#include "common/template/python_format.h"
#include "gtest/gtest.h"

namespace manta::chat_template {
namespace {

TEST(TextTest, CodePointsOfBrokenText) {
  EXPECT_EQ(CodePointCount("a\xC3\xA9\xE6\xBC\xA2\xF0\x9F\x98\x80"), 4u);
  EXPECT_EQ(CodePointCount("\xFF\xC3"), 2u);  // a bad byte counts as one
  size_t bad = 0;
  EXPECT_FALSE(IsValidUtf8("ab\xED\xA0\x80", &bad));  // a surrogate
  EXPECT_EQ(bad, 2u);
  EXPECT_FALSE(IsValidUtf8("\xC0\x80", &bad));  // an overlong form
  EXPECT_TRUE(IsValidUtf8("\xF4\x8F\xBF\xBF", &bad));
}

TEST(TextTest, CaseMapping) {
  EXPECT_EQ(ToUpper("stra\xC3\x9F"
                    "e"),
            "STRASSE");
  EXPECT_EQ(ToLower("\xCE\xA3\xCE\x91\xCE\xA3"), "\xCF\x83\xCE\xB1\xCF\x82");  // the last sigma is final
  EXPECT_EQ(ToTitle("they're"), "They'Re");
  EXPECT_EQ(Capitalize("hELLO"), "Hello");
}

TEST(TextTest, LinesAndSpace) {
  EXPECT_EQ(SplitLines("a\r\nb\n\nc\n").size(), 4u);
  EXPECT_EQ(StripRight("a\xC2\xA0 \xE3\x80\x80"), "a");
  EXPECT_EQ(StripLeft("\t\x1c b"), "b");
}

TEST(PythonFormatTest, Floats) {
  EXPECT_EQ(FloatRepr(1), "1.0");
  EXPECT_EQ(FloatRepr(-0.0), "-0.0");
  EXPECT_EQ(FloatRepr(0.1), "0.1");
  EXPECT_EQ(FloatRepr(1e15), "1000000000000000.0");
  EXPECT_EQ(FloatRepr(1e16), "1e+16");
  EXPECT_EQ(FloatRepr(0.0001), "0.0001");
  EXPECT_EQ(FloatRepr(0.00001), "1e-05");
  EXPECT_EQ(FloatRepr(1.5e300), "1.5e+300");
}

TEST(PythonFormatTest, Strings) {
  EXPECT_EQ(StringRepr("it's"), "\"it's\"");
  EXPECT_EQ(StringRepr("it's \"x\""), "'it\\'s \"x\"'");
  EXPECT_EQ(StringRepr(std::string("\0\n\x7f\xC2\xA0", 5)), "'\\x00\\n\\x7f\\xa0'");
  EXPECT_EQ(IntText(-(Int{1} << 100)), "-1267650600228229401496703205376");
}

}  // namespace
}  // namespace manta::chat_template
