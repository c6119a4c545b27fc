// Runs as jobs of a cluster that stays, on a node with no more slots than the trainer has ranks: trainer and generator
// work in turns, so that is enough; the second job waits until the first one's slots are free, and says so.
#include <fcntl.h>

#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/file.h"
#include "controller/node/process.h"
#include "gmock/gmock.h"
#include "tests/testing/build_dir.h"
#include "tests/testing/launched_cluster.h"

namespace manta::testing {
namespace {

using ::testing::HasSubstr;

class ClusterRunTest : public ::testing::Test {
 protected:
  void SetUp() override {
    bin_ = BuildDir() / "bin";
    cluster_ = LaunchedCluster::Launch(bin_, "cluster_run_test", /*cpu_slots=*/2).value();
  }
  // `manta submit` of the quickstart for some steps.
  Process Submit(const std::string& name, int steps, bool follow) {
    const std::filesystem::path dir = cluster_->dir() / name;
    std::filesystem::create_directories(dir);
    std::vector<std::string> args = {"submit",
                                     "configs/quickstart_grpo.yaml",
                                     "--name",
                                     name,
                                     "--dir",
                                     cluster_->dir().string(),
                                     absl::StrCat("grpo.max_num_steps=", steps),
                                     "grpo.val_at_start=false",
                                     "grpo.val_period=0",
                                     absl::StrCat("logger.log_dir=", (dir / "logs").string()),
                                     absl::StrCat("checkpointing.checkpoint_dir=", (dir / "ckpt").string())};
    if (follow) args.push_back("--follow");
    const int fd = open(OutputPath(name).c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    Process process =
        Process::Spawn({.executable = (bin_ / "manta").string(), .args = args, .stdout_fd = fd, .stderr_fd = fd})
            .value();
    close(fd);
    return process;
  }
  std::string OutputPath(const std::string& name) const { return (cluster_->dir() / (name + ".txt")).string(); }
  std::string Output(const std::string& name) const { return ReadFile(OutputPath(name)).value_or("no output"); }
  v1::JobInfo Job(const std::string& name) const {
    grpc::ClientContext context;
    v1::ListRequest request;
    request.set_jobs(true);
    v1::ListReply reply;
    EXPECT_TRUE(cluster_->stub()->List(&context, request, &reply).ok());
    for (const v1::JobInfo& job : reply.jobs()) {
      if (job.name() == name) return job;
    }
    return {};
  }
  bool WaitFor(const std::string& name, const std::string& state) const {
    for (const absl::Time until = absl::Now() + absl::Seconds(60); absl::Now() < until;) {
      if (Job(name).state() == state) return true;
      absl::SleepFor(absl::Milliseconds(20));
    }
    return false;
  }

  std::filesystem::path bin_;
  std::unique_ptr<LaunchedCluster> cluster_;
};

TEST_F(ClusterRunTest, OneAfterTheOther) {
  Process first = Submit("first", /*steps=*/60, /*follow=*/false);
  ASSERT_TRUE(first.WaitFor(absl::Seconds(30)).has_value());
  ASSERT_TRUE(WaitFor("first", "RUNNING")) << Output("first");
  EXPECT_GT(Job("first").submitted_unix_ms(), absl::ToUnixMillis(absl::Now()) - 60000);
  Process second = Submit("second", /*steps=*/2, /*follow=*/true);
  ASSERT_TRUE(WaitFor("second", "QUEUED")) << Output("second");
  EXPECT_THAT(Job("second").waits_for(), HasSubstr("second/train waits for slots that are in use"));
  const std::optional<ExitStatus> ended = second.WaitFor(absl::Seconds(120));
  ASSERT_TRUE(ended.has_value());
  EXPECT_EQ(ended->code, 0) << Output("second");
  for (const char* name : {"first", "second"}) {
    ASSERT_TRUE(WaitFor(name, "ENDED"));
    EXPECT_EQ(Job(name).status().code(), 0) << Job(name).status().message();
  }
}

}  // namespace
}  // namespace manta::testing
