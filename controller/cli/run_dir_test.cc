#include "controller/cli/run_dir.h"

#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "common/actor/cluster.h"
#include "common/base/file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace manta::cli {
namespace {

namespace fs = std::filesystem;

class RunDirTest : public ::testing::Test {
 protected:
  void SetUp() override { dir_ = fs::temp_directory_path() / absl::StrCat("run_dir_test.", getpid()); }
  void TearDown() override { fs::remove_all(dir_); }
  fs::path dir_;
};

TEST_F(RunDirTest, NumbersAscendAndLatestFollows) {
  EXPECT_EQ(MakeRunDir(dir_).value(), dir_ / "exp_001");
  fs::create_directory(dir_ / "exp_041");
  fs::create_directory(dir_ / "exp_notes");
  EXPECT_EQ(MakeRunDir(dir_).value(), dir_ / "exp_042");
  EXPECT_EQ(fs::read_symlink(dir_ / "latest"), "exp_042");
  EXPECT_TRUE(fs::is_directory(dir_ / "latest" / "logs"));
}

TEST_F(RunDirTest, AFileInTheWayIsAnError) {
  fs::create_directories(dir_);
  ASSERT_TRUE(WriteFileAtomically(dir_ / "file", "x").ok());
  EXPECT_THAT(MakeRunDir(dir_ / "file").status().message(), ::testing::HasSubstr((dir_ / "file").string()));
}

TEST_F(RunDirTest, ResolvedConfigurationRunsAgain) {
  const fs::path run_dir = MakeRunDir(dir_).value();
  const std::vector<std::string> overrides{"grpo.seed=7"};
  const config::Tree tree = config::LoadTree("tests/broken/configs/good.yaml", overrides).value();
  const config::RunConfig run = config::ParseRunConfig(tree).value();
  const fs::path path = WriteResolvedConfig(run_dir, tree, run, "manta run x.yaml grpo.seed=7").value();
  EXPECT_THAT(ReadFile(path).value(), ::testing::HasSubstr("# manta run x.yaml grpo.seed=7\n"));
  EXPECT_THAT(ReadFile(path).value(), ::testing::HasSubstr("# seed 7\n# sampling: temperature 1, top_p 1, top_k 0"));
  const config::Tree again = config::LoadTree(path).value();
  EXPECT_TRUE(config::SameValue(tree.root(), again.root()));
}

TEST_F(RunDirTest, ControllerAddress) {
  const fs::path run_dir = MakeRunDir(dir_).value();
  EXPECT_FALSE(actor::ReadHeadAddress(run_dir).ok());
  ASSERT_TRUE(WriteControllerAddress(run_dir, "127.0.0.1:99").ok());
  EXPECT_EQ(actor::ReadHeadAddress(run_dir).value(), "127.0.0.1:99");
}

}  // namespace
}  // namespace manta::cli
