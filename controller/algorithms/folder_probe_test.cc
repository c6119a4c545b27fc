#include "controller/algorithms/folder_probe.h"

#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "common/base/file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace manta::controller {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class FolderProbeTest : public ::testing::Test {
 protected:
  ~FolderProbeTest() override { fs::remove_all(folder_); }
  absl::Status Check(FolderProbe& probe) {
    return RunToCompletion(*loop_, probe.Check(loop_.get()));
  }
  const fs::path folder_ = fs::path(::testing::TempDir()) / absl::StrCat("folder_probe_test.", getpid());
  std::unique_ptr<EventLoop> loop_ = EventLoop::Simulated();
};

TEST_F(FolderProbeTest, RanksThatSeeItWriteBesideIt) {
  auto probe = FolderProbe::In(folder_ / "ckpt", {"train-0 on a", "train-1 on b"});
  ASSERT_TRUE(probe.ok()) << probe.status();
  const v1::FolderProbe request = (*probe)->request();
  EXPECT_EQ(ReadFile(request.path()).value_or(""), request.content());
  for (const char* rank : {".0", ".1"}) ASSERT_TRUE(WriteFileAtomically(request.path() + rank, request.content()).ok());
  EXPECT_TRUE(Check(**probe).ok());
  probe->reset();
  EXPECT_TRUE(fs::is_empty(folder_ / "ckpt")) << "nothing is left behind";
}

TEST_F(FolderProbeTest, ARankThatWritesElsewhereIsNamed) {
  auto probe = FolderProbe::In(folder_ / "ckpt", {"train-0 on a", "train-1 on b"});
  ASSERT_TRUE(probe.ok()) << probe.status();
  ASSERT_TRUE(WriteFileAtomically((*probe)->request().path() + ".0", (*probe)->request().content()).ok());
  ASSERT_TRUE(WriteFileAtomically((*probe)->request().path() + ".1", "an older one's\n").ok());
  const absl::Status status = Check(**probe);
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("what train-1 on b writes to " + (folder_ / "ckpt").string()));
  probe->reset();
  EXPECT_TRUE(fs::is_empty(folder_ / "ckpt"));
}

}  // namespace
}  // namespace manta::controller
