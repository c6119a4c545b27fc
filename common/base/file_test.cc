#include "common/base/file.h"

#include <filesystem>

#include "gtest/gtest.h"

namespace manta {
namespace {

TEST(File, WritesAndReads) {
  const auto path = std::filesystem::path(testing::TempDir()) / "file_test.txt";
  ASSERT_TRUE(WriteFileAtomically(path, "one").ok());
  ASSERT_TRUE(WriteFileAtomically(path, "two").ok());
  EXPECT_EQ(ReadFile(path).value(), "two");
  EXPECT_FALSE(ReadFile(path, 2).ok());
  std::filesystem::remove(path);
}

TEST(File, ErrorsNameThePath) {
  const auto status = ReadFile("/nonexistent/x").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_NE(status.message().find("/nonexistent/x"), absl::string_view::npos);
  EXPECT_FALSE(ReadFile("/tmp").ok());
}

}  // namespace
}  // namespace manta
