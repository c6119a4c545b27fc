// What a run lets anyone read: no environment, command line or log of its processes holds the job's token.
#include <fstream>

#include "tests/integration/runtime_job.h"

namespace manta::testing {
namespace {

TEST(Redaction, TheTokenIsInItsFileAlone) {
  RuntimeJob job("train 2 1\ngen 1 1\nseconds 2\n");
  ASSERT_TRUE(job.WaitReady());
  const std::string token = rpc::ReadTokenFile(job.run_dir() / "token").value();
  const std::string shown = token.substr(0, token.find(' '));
  ASSERT_GE(shown.size(), 16u);
  int processes = 0;
  for (const FoundProcess& process : job.Alive()) {
    ++processes;
    for (const char* file : {"environ", "cmdline"}) {
      const std::string content = ReadFile(absl::StrCat("/proc/", process.pid, "/", file)).value_or("");
      EXPECT_EQ(content.find(shown), std::string::npos) << file << " of " << process.command;
    }
  }
  EXPECT_GE(processes, 5) << "controller, agent and three workers at least";
  (void)job.WaitEnded();
  ASSERT_TRUE(job.WaitAllGone(absl::Seconds(10)).ok());
  int files = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(job.run_dir())) {
    if (!entry.is_regular_file()) continue;
    std::ifstream in(entry.path(), std::ios::binary);
    const std::string content((std::istreambuf_iterator<char>(in)), {});
    const bool secret = entry.path().filename().string().find("token") != std::string::npos;
    ++files;
    if (secret) {
      EXPECT_EQ(std::filesystem::status(entry.path()).permissions() & std::filesystem::perms(077),
                std::filesystem::perms::none)
          << entry.path();
    } else {
      EXPECT_EQ(content.find(shown), std::string::npos) << entry.path();
    }
  }
  EXPECT_GE(files, 4);
}

}  // namespace
}  // namespace manta::testing
