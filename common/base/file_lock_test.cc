#include "common/base/file_lock.h"

#include <sys/stat.h>

#include <optional>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace manta {
namespace {

TEST(FileLock, HasOneHolderAtATimeWhoSaysItsName) {
  const std::filesystem::path path = absl::StrCat(::testing::TempDir(), "/file_lock_test.", getpid());
  std::optional<FileLock> first = FileLock::Take(path, "run logs/exp_001").value();
  struct stat status {};
  ASSERT_EQ(stat(path.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
  EXPECT_EQ(FileLock::Take(path, "another").status(), absl::AlreadyExistsError("run logs/exp_001"));
  FileLock moved = *std::move(first);
  first.reset();
  EXPECT_EQ(FileLock::Take(path, "another").status(), absl::AlreadyExistsError("run logs/exp_001"));
  { const FileLock gone = std::move(moved); }
  EXPECT_TRUE(FileLock::Take(path, "another").ok());
  EXPECT_EQ(FileLock::Take("/nonexistent/lock", "x").status().code(), absl::StatusCode::kNotFound);
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace manta
