#include "common/config/tree.h"

#include <filesystem>
#include <fstream>

#include "common/config/interpolate.h"
#include "common/config/override.h"
#include "common/config/yaml.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace manta::config {
namespace {

using ::testing::HasSubstr;

std::string Resolved(std::string_view text, std::string_view path) {
  absl::StatusOr<Node> root = ParseYaml(text, "f.yaml");
  if (!root.ok()) return std::string(root.status().message());
  absl::StatusOr<Node> resolved = Interpolate(*root);
  if (!resolved.ok()) return std::string(resolved.status().message());
  const Node* node = FindPath(*resolved, path);
  return node == nullptr ? "absent" : ToJson(*node);
}

TEST(InterpolateTest, AbsoluteRelativeNestedAndText) {
  const char* text =
      "a: {b: 3, name: run, f: 1.5}\n"
      "x: ${a.b}\n"
      "m: ${a}\n"
      "t: \"r-${a.name}-${a.b}\"\n"
      "p:\n  length: 8\n  q: ${.length}\n  r:\n    s: ${..length}\n    t: ${...a.b}\n    list: [1, \"${...length}\"]\n"
      "mul: ${mul:${a.b}, ${mul:${p.length}, 2}}\n"
      "half: ${mul:${a.b},${a.f}}\n"
      "key: name\n"
      "dyn: ${a.${key}}\n"
      "chain: ${x}\n"
      "esc: \"\\\\${a.b}\"\n";
  EXPECT_EQ(Resolved(text, "x"), "3");
  EXPECT_EQ(Resolved(text, "m.name"), "\"run\"");
  EXPECT_EQ(Resolved(text, "t"), "\"r-run-3\"");
  EXPECT_EQ(Resolved(text, "p.q"), "8");
  EXPECT_EQ(Resolved(text, "p.r.s"), "8");
  EXPECT_EQ(Resolved(text, "p.r.t"), "3");
  EXPECT_EQ(Resolved(text, "mul"), "48");
  EXPECT_EQ(Resolved(text, "half"), "4.5");
  EXPECT_EQ(Resolved(text, "dyn"), "\"run\"");
  EXPECT_EQ(Resolved(text, "chain"), "3");
  EXPECT_EQ(Resolved(text, "esc"), "\"${a.b}\"");
}

TEST(InterpolateTest, RelativeToTheListThatHoldsIt) {
  EXPECT_EQ(Resolved("p: {n: 8, list: [1, '${..n}', '${.0}']}\n", "p.list"), "[1,8,1]");
}

TEST(InterpolateTest, RelativePathsOfAnInterpolatedMapStayWhereTheyWereWritten) {
  EXPECT_EQ(Resolved("a: {n: 1, m: {k: '${..n}'}}\nb: {n: 2, m: '${a.m}'}\n", "b.m.k"), "1");
}

TEST(InterpolateTest, ThroughAnInterpolatedParent) {
  EXPECT_EQ(Resolved("a: {n: 1}\nb: ${a}\nc: ${b.n}\n", "c"), "1");
}

TEST(InterpolateTest, Errors) {
  EXPECT_THAT(Resolved("a: ${b}\nb: ${a}\n", "a"), HasSubstr("f.yaml:1: interpolation goes in a circle: a -> b -> a"));
  EXPECT_THAT(Resolved("a: {b: '${a}'}\n", "a"), HasSubstr("circle"));
  EXPECT_THAT(Resolved("\n\na: ${x.y}\n", "a"), HasSubstr("f.yaml:3: '${x.y}': there is no x.y"));
  EXPECT_THAT(Resolved("a: ${..x}\n", "a"), HasSubstr("above the root"));
  EXPECT_THAT(Resolved("a: \"${x\"\n", "a"), HasSubstr("lacks its closing brace"));
  EXPECT_THAT(Resolved("a: ${oc.env:HOME}\n", "a"), HasSubstr("unknown function 'oc.env'"));
  EXPECT_THAT(Resolved("a: ${mul:1,x}\n", "a"), HasSubstr("mul wants numbers"));
  EXPECT_THAT(Resolved("a: ${mul:1}\n", "a"), HasSubstr("at least two"));
  EXPECT_THAT(Resolved("a: ${div:1,0}\n", "a"), HasSubstr("division by zero"));
  EXPECT_THAT(Resolved("m: {x: 1}\na: \"v${m}\"\n", "a"), HasSubstr("cannot stand inside text"));
  std::string bomb = "a0: x\n";
  for (int i = 1; i < 30; ++i) {
    const std::string previous = "${a" + std::to_string(i - 1) + "}";
    bomb += "a" + std::to_string(i) + ": \"" + previous + previous + "\"\n";
  }
  EXPECT_THAT(Resolved(bomb, "a1"), HasSubstr("unfolds into too much"));
}

TEST(InterpolateTest, DisabledTreesMayDangle) {
  EXPECT_EQ(Resolved("a: {enabled: false, x: '${no.such}'}\nb: 1\n", "b"), "1");
}

TEST(OverrideTest, SetsAddsDeletes) {
  absl::StatusOr<Node> root = ParseYaml("a: {b: 1, c: 2}\nl: [{x: 1}, {x: 2}]\n", "f.yaml");
  ASSERT_TRUE(root.ok());
  for (const char* text : {"a.b=5", "+a.d={e: [1, 2]}", "~a.c", "l.1.x=7", "+n.m=null", "a.s=\"1\"", "a.t=x=y"}) {
    absl::Status status = ApplyOverride(text, *root);
    EXPECT_TRUE(status.ok()) << text << status;
  }
  EXPECT_EQ(ToJson(*root),
            R"({"a":{"b":5,"d":{"e":[1,2]},"s":"1","t":"x=y"},"l":[{"x":1},{"x":7}],"n":{"m":null}})");
  EXPECT_EQ(FindPath(*root, "a.b")->mark.ToString(), "override a.b=5");
  for (const char* text : {"a", "=3", "a..b=1", "~a.zz", "a.b.c=1", "l.9=1", "a b=1", "~", "+", "a=[1"}) {
    EXPECT_FALSE(ApplyOverride(text, *root).ok()) << text;
  }
}

class FilesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    dir_ = std::filesystem::temp_directory_path() / ("config_test." + std::to_string(getpid()));
    std::filesystem::create_directories(dir_ / "sub");
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }
  std::filesystem::path Write(const std::string& name, const std::string& text) {
    std::ofstream(dir_ / name) << text;
    return dir_ / name;
  }
  std::filesystem::path dir_;
};

TEST_F(FilesTest, DefaultsMergeInOrder) {
  Write("base.yaml", "a: {x: 1, y: 2}\nl: [1, 2]\nn: ${a.x}\n");
  Write("second.yaml", "a: {y: 3}\n");
  const auto path = Write("sub/top.yaml", "defaults: [../base.yaml, ../second.yaml]\na: {z: 4}\nl: [9]\n");
  absl::StatusOr<Node> root = ReadMerged(path);
  ASSERT_TRUE(root.ok()) << root.status();
  EXPECT_EQ(ToJson(*root), R"({"a":{"x":1,"y":3,"z":4},"l":[9],"n":"${a.x}"})");
  EXPECT_THAT(FindPath(*root, "a.y")->mark.ToString(), HasSubstr("second.yaml:1"));
}

TEST_F(FilesTest, CirclesMissingAndEmptyFilesAreErrors) {
  const auto a = Write("a.yaml", "defaults: b.yaml\nx: 1\n");
  Write("b.yaml", "defaults: a.yaml\n");
  EXPECT_THAT(ReadMerged(a).status().message(), HasSubstr("defaults go in a circle: a.yaml -> b.yaml -> a.yaml"));
  const auto c = Write("c.yaml", "x: 1\ndefaults: none.yaml\n");
  EXPECT_THAT(ReadMerged(c).status().message(), HasSubstr("c.yaml:2: defaults: there is no file"));
  EXPECT_THAT(ReadMerged(Write("d.yaml", "")).status().message(), HasSubstr("is empty"));
  EXPECT_THAT(ReadMerged(Write("e.yaml", "[1]\n")).status().message(), HasSubstr("expected a map"));
  EXPECT_FALSE(ReadMerged(dir_ / "none.yaml").ok());
  EXPECT_FALSE(ReadMerged(dir_).ok());
}

}  // namespace
}  // namespace manta::config
