// What a run lets anyone read: no environment, command line or log of its processes holds a token of the job, or the
// secret that they are made from.
#include <algorithm>
#include <fstream>

#include "common/rpc/token.h"
#include "tests/integration/runtime_job.h"

namespace manta::testing {
namespace {

TEST(Redaction, TokensAreInTheirFilesAlone) {
  RuntimeJob job("train 2 1\ngen 1 1\nseconds 2\n");
  ASSERT_TRUE(job.WaitReady());
  std::vector<std::string> secrets;
  for (const char* file : {"secret", "token", "token.node", "token.worker", "token.reader"}) {
    const std::string line = rpc::ReadTokenFile(job.run_dir() / file).value();
    secrets.push_back(line.substr(0, line.find(' ')));
    ASSERT_GE(secrets.back().size(), 32u);
  }
  const auto tells = [&](const std::string& content) {
    return std::any_of(secrets.begin(), secrets.end(),
                       [&](const std::string& secret) { return content.find(secret) != std::string::npos; });
  };
  int processes = 0;
  for (const FoundProcess& process : job.Alive()) {
    ++processes;
    for (const char* file : {"environ", "cmdline"}) {
      const std::string content = ReadFile(absl::StrCat("/proc/", process.pid, "/", file)).value_or("");
      EXPECT_FALSE(tells(content)) << file << " of " << process.command;
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
    const std::string name = entry.path().filename().string();
    const bool secret = name == "secret" || name.find("token") != std::string::npos;
    ++files;
    if (secret) {
      EXPECT_EQ(std::filesystem::status(entry.path()).permissions() & std::filesystem::perms(077),
                std::filesystem::perms::none)
          << entry.path();
    } else {
      EXPECT_FALSE(tells(content)) << entry.path();
    }
  }
  EXPECT_GE(files, 9);
}

}  // namespace
}  // namespace manta::testing
