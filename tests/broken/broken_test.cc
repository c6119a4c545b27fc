// Runs `manta` on every case of cases.txt: the exit code, one error and no more, no crash, no hang.
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "common/base/file.h"
#include "controller/node/process.h"
#include "gtest/gtest.h"

namespace manta {
namespace {

constexpr char kFolder[] = "tests/broken";

struct Case {
  int line = 0;
  int exit_code = 0;
  std::string expected;
  std::vector<std::string> args;
};

std::vector<Case> ReadCases() {
  std::vector<Case> cases;
  std::ifstream file(absl::StrCat(kFolder, "/cases.txt"));
  std::string text;
  for (int line = 1; std::getline(file, text); ++line) {
    if (text.empty() || text[0] == '#') continue;
    text = absl::StrReplaceAll(text, {{"GOOD", "BROKEN/configs/good.yaml"}, {"SFT", "BROKEN/configs/good_sft.yaml"}});
    text = absl::StrReplaceAll(text, {{"BROKEN", kFolder}});
    const std::vector<std::string> parts = absl::StrSplit(text, " | ");
    EXPECT_EQ(parts.size(), 3u) << "cases.txt:" << line;
    if (parts.size() != 3) continue;
    Case c;
    c.line = line;
    c.exit_code = std::atoi(parts[0].c_str());
    c.expected = parts[1];
    c.args = absl::StrSplit(absl::StripAsciiWhitespace(parts[2]), ' ');
    cases.push_back(std::move(c));
  }
  return cases;
}

std::string BuildDir() {
  const char* dir = std::getenv("MANTA_BUILD_DIR");
  return dir != nullptr ? dir : "build";
}

TEST(BrokenTest, OneClearErrorForEach) {
  const std::vector<Case> cases = ReadCases();
  ASSERT_GT(cases.size(), 100u);
  std::string output = (std::filesystem::temp_directory_path() / "broken_test.XXXXXX").string();
  const int made = mkstemp(output.data());
  ASSERT_GE(made, 0);
  close(made);
  for (const Case& c : cases) {
    SCOPED_TRACE(absl::StrCat("cases.txt:", c.line, ": ", c.expected));
    const int fd = open(output.c_str(), O_WRONLY | O_TRUNC | O_CLOEXEC);
    ASSERT_GE(fd, 0);
    absl::StatusOr<Process> process =
        Process::Spawn({.executable = absl::StrCat(BuildDir(), "/bin/manta"), .args = c.args, .stdout_fd = fd, .stderr_fd = fd});
    close(fd);
    ASSERT_TRUE(process.ok()) << process.status();
    std::optional<ExitStatus> exit = process->WaitFor(absl::Seconds(10));
    if (!exit) {
      process->Signal(SIGKILL);
      process->WaitFor(absl::Seconds(5));
      ADD_FAILURE() << "still runs after 10 s";
      continue;
    }
    const std::string text = ReadFile(output).value();
    EXPECT_EQ(exit->code, c.exit_code) << exit->ToString() << "\n" << text;
    EXPECT_NE(text.find(c.expected), std::string::npos) << text;
    size_t errors = 0;
    for (size_t at = text.find("manta: error: "); at != std::string::npos; at = text.find("manta: error: ", at + 1)) ++errors;
    EXPECT_EQ(errors, c.exit_code == 0 ? 0u : 1u) << text;
    EXPECT_LE(std::count(text.begin(), text.end(), '\n'), 3) << "an error is a line:\n" << text;
  }
  std::filesystem::remove(output);
}

}  // namespace
}  // namespace manta
