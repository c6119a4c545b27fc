#include "common/config/yaml.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace manta::config {
namespace {

using ::testing::HasSubstr;

std::string ErrorOf(std::string_view text) {
  absl::StatusOr<Node> node = ParseYaml(text, "f.yaml");
  return node.ok() ? "ok" : std::string(node.status().message());
}

TEST(YamlTest, KeepsLinesAndKinds) {
  absl::StatusOr<Node> root = ParseYaml("a: 1\nb:\n  c: [x, \"2\", null]\n  d: {}\n", "f.yaml");
  ASSERT_TRUE(root.ok()) << root.status();
  EXPECT_EQ(FindPath(*root, "a")->AsInt(), 1);
  EXPECT_EQ(FindPath(*root, "b")->mark.ToString(), "f.yaml:2");
  EXPECT_EQ(FindPath(*root, "b.c")->mark.ToString(), "f.yaml:3");
  EXPECT_EQ(FindPath(*root, "b.c.1")->AsInt(), std::nullopt) << "quoted";
  EXPECT_TRUE(FindPath(*root, "b.c.2")->is_null());
  EXPECT_EQ(FindPath(*root, "b.c.3"), nullptr);
  EXPECT_TRUE(FindPath(*root, "b.d")->is_map());
}

TEST(YamlTest, NumbersAndBooleans) {
  const auto number = [](const char* text) { return Node::Scalar(text, {}).AsDouble(); };
  EXPECT_EQ(number("1e-8"), 1e-8);
  EXPECT_EQ(number("5e-06"), 5e-6);
  EXPECT_EQ(number("1_000"), 1000);
  EXPECT_EQ(number("-.5"), -0.5);
  EXPECT_EQ(number("1.2.3"), std::nullopt);
  EXPECT_EQ(number("e"), std::nullopt);
  EXPECT_EQ(number("nan"), std::nullopt);
  EXPECT_EQ(Node::Scalar("9223372036854775808", {}).AsInt(), std::nullopt);
  EXPECT_EQ(Node::Scalar("True", {}).AsBool(), true);
  EXPECT_EQ(Node::Scalar("off", {}).AsBool(), false);
  EXPECT_EQ(Node::Scalar("1", {}).AsBool(), std::nullopt);
}

TEST(YamlTest, ErrorsNameTheLine) {
  EXPECT_EQ(ErrorOf("a: 1\nb: 2\na: 3\n"), "f.yaml:3: duplicate key 'a' (first on line 1)");
  EXPECT_THAT(ErrorOf("a: [1, 2\nb: 3\n"), HasSubstr("f.yaml:2"));
  EXPECT_THAT(ErrorOf("a: b: c\n"), HasSubstr("f.yaml:1"));
  EXPECT_THAT(ErrorOf("a: \"x\n"), HasSubstr("f.yaml:"));
  EXPECT_THAT(ErrorOf("? [1]\n: 2\n"), HasSubstr("a key must be a word"));
  EXPECT_THAT(ErrorOf("a: 1\n---\nb: 2\n"), HasSubstr("more than one YAML document"));
  EXPECT_THAT(ErrorOf("a: *b\n"), HasSubstr("f.yaml:1"));
  EXPECT_EQ(ErrorOf("a: 1\nb: \xff\n"), "f.yaml:2: is not UTF-8 text");
  EXPECT_EQ(ErrorOf("a: \xed\xa0\x80\n"), "f.yaml:1: is not UTF-8 text");
  EXPECT_EQ(ErrorOf("a: \xf0\x9f\x98\x80 \xe2\x82\xac \xc3\xa9\n"), "ok");
  EXPECT_THAT(ErrorOf(std::string(300, '[')), HasSubstr("f.yaml:1"));
}

TEST(YamlTest, AliasesUnfoldWithinBounds) {
  absl::StatusOr<Node> root = ParseYaml("base: &b {x: 1, y: 2}\nc:\n  <<: *b\n  y: 3\n", "f.yaml");
  ASSERT_TRUE(root.ok()) << root.status();
  EXPECT_EQ(FindPath(*root, "c.x")->AsInt(), 1);
  EXPECT_EQ(FindPath(*root, "c.y")->AsInt(), 3);
  std::string bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n";
  for (int i = 1; i < 12; ++i) {
    const std::string previous = "*a" + std::to_string(i - 1);
    bomb += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [" + previous;
    for (int k = 0; k < 9; ++k) bomb += ", " + previous;
    bomb += "]\n";
  }
  EXPECT_THAT(ErrorOf(bomb), HasSubstr("more than 50000 values"));
}

TEST(YamlTest, WritesWhatItReads) {
  const std::string text =
      "a: 1\nb: \"1\"\nc: null\nd: [1, \"null\", x y]\ne:\n  - name: n\n    kwargs: {lr: 1e-5}\n  - milestones: [3]\n"
      "f: \"two\\nlines: # not a comment\"\ng: {}\nh: []\ni: \"\"\nj: -3\nk: \"- x\"\nl: \"caf\xc3\xa9\"\n\"true\": yes\n"
      "m: \"-1 folded\\n text\"\nn: \"-1 # no comment\"\n";
  absl::StatusOr<Node> root = ParseYaml(text, "f.yaml");
  ASSERT_TRUE(root.ok()) << root.status();
  const std::string written = ToYaml(*root);
  absl::StatusOr<Node> again = ParseYaml(written, "g.yaml");
  ASSERT_TRUE(again.ok()) << again.status() << "\n" << written;
  EXPECT_TRUE(SameValue(*root, *again)) << written;
  EXPECT_EQ(ToJson(*root), ToJson(*again));
  EXPECT_THAT(ToJson(*root), HasSubstr("\"b\":\"1\",\"c\":null"));
}

}  // namespace
}  // namespace manta::config
