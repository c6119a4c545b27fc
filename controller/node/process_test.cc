#include "controller/node/process.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <string>

#include "gtest/gtest.h"

namespace manta {
namespace {

// Runs /bin/sh -c `script` with its stdout in the result (a shell in the test, not in the product).
std::string Output(ProcessSpec spec, const std::string& script = "") {
  int fds[2];
  EXPECT_EQ(pipe2(fds, O_CLOEXEC), 0);
  if (spec.executable.empty()) {
    spec.executable = "/bin/sh";
    spec.args = {"-c", script};
  }
  spec.stdout_fd = fds[1];
  Process child = Process::Spawn(spec).value();
  close(fds[1]);
  std::string output;
  char buffer[4096];
  ssize_t n;
  while ((n = read(fds[0], buffer, sizeof(buffer))) > 0) output.append(buffer, n);
  close(fds[0]);
  EXPECT_EQ(child.WaitFor(absl::Seconds(10))->code, 0);
  return output;
}

TEST(Process, TellsHowTheChildEnded) {
  Process child = Process::Spawn({.executable = "/bin/sh", .args = {"-c", "exit 3"}}).value();
  EXPECT_EQ(child.WaitFor(absl::Seconds(10))->code, 3);
  EXPECT_EQ(child.TryWait()->ToString(), "exited with code 3");
  EXPECT_FALSE(child.Signal(SIGKILL));

  Process sleeper = Process::Spawn({.executable = "/bin/sleep", .args = {"100"}}).value();
  EXPECT_FALSE(sleeper.TryWait().has_value());
  EXPECT_FALSE(sleeper.WaitFor(absl::Milliseconds(10)).has_value());
  EXPECT_TRUE(sleeper.Signal(SIGKILL));
  EXPECT_EQ(sleeper.WaitFor(absl::Seconds(10))->ToString(), "was killed by signal 9 (Killed)");
}

TEST(Process, NamesWhatCannotBeExecuted) {
  const absl::Status status = Process::Spawn({.executable = "/nonexistent/worker"}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_NE(status.message().find("cannot execute /nonexistent/worker"), std::string::npos) << status;
  EXPECT_FALSE(Process::Spawn({.executable = "/"}).ok());
}

TEST(Process, ArgumentsAndEnvironmentPassUnchanged) {
  EXPECT_EQ(Output({.env = {{"MANTA_TEST", "a b'c"}}}, "printf '%s' \"$MANTA_TEST\""), "a b'c");
}

TEST(Process, NoOtherDescriptorIsInherited) {
  const int leak = open("/dev/null", O_RDONLY);  // without close-on-exec
  const int passed = open("/dev/zero", O_RDONLY | O_CLOEXEC);
  EXPECT_EQ(Output({.executable = "/bin/ls", .args = {"/proc/self/fd"}}), "0\n1\n2\n3\n");  // 3 is the folder's
  EXPECT_EQ(Output({.executable = "/bin/readlink", .args = {"/proc/self/fd/3"}, .pass_fd = passed}), "/dev/zero\n");
  close(leak);
  close(passed);
}

TEST(Process, SignalMaskIsEmptyInTheChild) {
  sigset_t set, old;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &set, &old);
  Process child = Process::Spawn({.executable = "/bin/sleep", .args = {"100"}}).value();
  pthread_sigmask(SIG_SETMASK, &old, nullptr);
  child.Signal(SIGTERM);
  EXPECT_EQ(child.WaitFor(absl::Seconds(10))->signal, SIGTERM);
}

}  // namespace
}  // namespace manta
