#include "controller/node/captured_log.h"

#include <unistd.h>

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "common/base/file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace manta::node {
namespace {

using ::testing::ElementsAre;

TEST(LineTail, KeepsTheLastLines) {
  LineTail tail(3);
  tail.Append("a\nb");
  EXPECT_THAT(tail.Lines(), ElementsAre("a", "b"));
  tail.Append("2\nc\nd\n");
  EXPECT_THAT(tail.Lines(), ElementsAre("b2", "c", "d"));
  tail.Append("unfinished");
  EXPECT_THAT(tail.Lines(), ElementsAre("c", "d", "unfinished"));
}

TEST(LineTail, BoundsLinesAndMakesThemUtf8) {
  LineTail tail;
  tail.Append(std::string(100000, 'x'));
  EXPECT_EQ(tail.Lines()[0].size(), 500u);
  LineTail bytes;
  bytes.Append("caf\xc3\xa9 \xff\xc0\xaf \xed\xa0\x80 \xf0\x9f\x99\x82\x01\n");
  EXPECT_THAT(bytes.Lines(), ElementsAre("caf\xc3\xa9 ??? ??? \xf0\x9f\x99\x82?"));
}

TEST(CapturedLog, RotatesAtItsBound) {
  const auto folder = std::filesystem::path(::testing::TempDir()) / absl::StrCat("log.", getpid());
  const std::string path = folder / "logs" / "train-0.log";
  CapturedLog log;
  ASSERT_TRUE(log.Open(path, 100).ok());
  for (int i = 0; i < 10; ++i) log.Write(absl::StrCat("line ", i, std::string(20, '.'), "\n"));
  EXPECT_LE(ReadFile(path)->size(), 100u);
  EXPECT_LE(ReadFile(path + ".1")->size(), 100u);
  EXPECT_EQ(LastLinesOf(path, 1), (std::vector<std::string>{"line 9" + std::string(20, '.')}));
  EXPECT_TRUE(LastLinesOf(path + ".none").empty());
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace manta::node
