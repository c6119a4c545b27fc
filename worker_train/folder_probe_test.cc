#include "worker_train/folder_probe.h"

#include <unistd.h>

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "common/base/file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace manta::train {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

TEST(AnswerFolderProbe, WritesWhatItHasRead) {
  const fs::path folder = fs::path(::testing::TempDir()) / absl::StrCat("answer_probe_test.", getpid());
  fs::create_directories(folder);
  v1::FolderProbe probe;
  probe.set_path((folder / ".probe").string());
  probe.set_content("0123\n");
  const auto answer = [&] { return AnswerFolderProbe(probe, 3, absl::Milliseconds(250)); };

  absl::Status status = answer();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(folder.string() + " is not the controller's folder of that name here (the "
                                                                         "file that it has written is not there)"));
  ASSERT_TRUE(WriteFileAtomically(probe.path(), "another's\n").ok());
  EXPECT_THAT(std::string(answer().message()), HasSubstr("the file that it has written differs"));

  ASSERT_TRUE(WriteFileAtomically(probe.path(), probe.content()).ok());
  EXPECT_TRUE(answer().ok());
  EXPECT_EQ(ReadFile(probe.path() + ".3").value_or(""), probe.content());

  fs::remove(probe.path() + ".3");
  fs::create_directory(probe.path() + ".3");  // where nothing can be written
  EXPECT_THAT(std::string(answer().message()), HasSubstr("it cannot be written to: "));
  fs::remove_all(folder);
}

}  // namespace
}  // namespace manta::train
