// A folder of a test's own, removed at its end.
#pragma once

#include <unistd.h>

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace manta::journal {

class TestFolder {
 public:
  TestFolder() {
    static int counter = 0;
    path_ = std::filesystem::path(::testing::TempDir()) / absl::StrCat("journal-", getpid(), "-", ++counter);
    std::filesystem::create_directories(path_);
  }
  ~TestFolder() {
    std::error_code error;
    std::filesystem::remove_all(path_, error);
  }
  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path file() const { return path_ / "journal.db"; }

 private:
  std::filesystem::path path_;
};

}  // namespace manta::journal
