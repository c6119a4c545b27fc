// The folder of a test's job (a token a role, logs) and the programs that are started in it, each with the test's mark in its
// environment and an end of its own.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/kill.h"
#include "common/rpc/keys.h"
#include "controller/node/process.h"
#include "gtest/gtest.h"
#include "tests/integration/marked_processes.h"
#include "tests/testing/build_dir.h"

namespace manta::testing {

class JobFolder {
 public:
  explicit JobFolder(const std::string& kind) {
    static int counter = 0;
    mark_ = absl::StrCat(kind, "-", getpid(), "-", ++counter);
    bin_ = BuildDir() / "bin";
    path_ = std::filesystem::path(::testing::TempDir()) / mark_;
    std::filesystem::create_directories(path_ / "logs");
    token_ = rpc::RoleTokens::InFolder(path_).value().KeysOf(v1::ROLE_ADMIN);
  }

  // `name`: of ours, or an absolute path.
  Process Start(const std::string& name, std::vector<std::string> args, const std::string& log, int stdout_fd = -1) {
    const int fd = open((path_ / "logs" / log).c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    Process process = Process::Spawn({.executable = (bin_ / name).string(),
                                      .args = std::move(args),
                                      .env = {{kMarkVariable, mark_}},
                                      .stdout_fd = stdout_fd >= 0 ? stdout_fd : fd,
                                      .stderr_fd = fd,
                                      .new_process_group = true})
                          .value();
    close(fd);
    return process;
  }
  // One that says on stdout where it listens. The address is empty where it did not.
  std::pair<Process, std::string> StartServer(const std::string& name, std::vector<std::string> args,
                                              const std::string& log) {
    int out[2];
    EXPECT_EQ(pipe2(out, O_CLOEXEC), 0);
    Process process = Start(name, std::move(args), log, out[1]);
    close(out[1]);
    std::string line;
    for (char c; read(out[0], &c, 1) == 1 && c != '\n';) line += c;
    close(out[0]);
    EXPECT_TRUE(absl::StartsWith(line, "listening ")) << line;
    return {std::move(process), line.substr(line.find(' ') + 1)};
  }

  // Every process of this job that runs (a zombie has ended).
  std::vector<FoundProcess> Alive() const { return MarkedProcesses(mark_); }
  void KillAll() const {
    for (int i = 0; i < 100; ++i) {
      const std::vector<FoundProcess> alive = Alive();
      if (alive.empty()) return;
      for (const FoundProcess& process : alive) KillProcess(process.pid, SIGKILL);
      absl::SleepFor(absl::Milliseconds(10));
    }
  }
  // Kept where the test has failed.
  void Remove() const {
    if (!::testing::Test::HasFailure()) std::filesystem::remove_all(path_);
  }
  const std::filesystem::path& path() const { return path_; }
  const std::filesystem::path& bin() const { return bin_; }
  const std::string& token() const { return token_; }  // an admin's
  std::string agents_token_file() const { return (path_ / "token.node").string(); }

 private:
  std::string mark_, token_;
  std::filesystem::path bin_, path_;
};

}  // namespace manta::testing
