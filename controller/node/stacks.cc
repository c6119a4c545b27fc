#include "controller/node/stacks.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "common/base/file.h"
#include "common/base/kill.h"
#include "controller/node/process.h"

namespace manta::node {
namespace {

constexpr size_t kMaxText = 128 << 10;
constexpr size_t kMaxThreads = 512;
constexpr absl::Duration kDebugger = absl::Seconds(5);   // half of what a worker may be silent for
constexpr absl::Duration kOwnStacks = absl::Seconds(2);  // for a worker to begin writing, or to end
constexpr absl::Duration kQuiet = absl::Milliseconds(200);
constexpr absl::Duration kLook = absl::Milliseconds(25);

std::string Small(const std::string& path) {
  std::string text = ReadFile(path, 64 << 10).value_or("");
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

// "S" of /proc/PID/stat, after the name, which may hold anything.
std::string StateOf(const std::string& stat) {
  const size_t paren = stat.rfind(')');
  return paren != std::string::npos && paren + 2 < stat.size() ? stat.substr(paren + 2, 1) : "?";
}

std::string KernelStacks(int64_t pid) {
  std::vector<int64_t> threads;
  const std::string folder = absl::StrCat("/proc/", pid, "/task");
  if (DIR* dir = opendir(folder.c_str())) {
    while (const dirent* entry = readdir(dir)) {
      int64_t thread;
      if (absl::SimpleAtoi(entry->d_name, &thread)) threads.push_back(thread);
    }
    closedir(dir);
  }
  if (threads.empty()) return absl::StrCat("there is no process ", pid, " any more\n");
  std::sort(threads.begin(), threads.end());
  std::string text;
  for (size_t i = 0; i < std::min(threads.size(), kMaxThreads); ++i) {
    const std::string task = absl::StrCat(folder, "/", threads[i]);
    absl::StrAppend(&text, "thread ", threads[i], " (", Small(task + "/comm"), ") state ",
                    StateOf(Small(task + "/stat")), " in ", Small(task + "/wchan"), "\n");
    const std::vector<std::string> lines = absl::StrSplit(Small(task + "/stack"), '\n', absl::SkipEmpty());
    for (const std::string& line : lines) {
      absl::StrAppend(&text, "  ", line, "\n");
    }
  }
  return text;
}

// What has been written into the log since, at most kMaxText of it.
std::string LogSince(const StackSource& source) {
  const int fd = open(source.log_path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return "";
  struct stat st;
  const bool anew = fstat(fd, &st) == 0 && st.st_size < source.log_begin;
  std::string text(kMaxText, '\0');
  const ssize_t n = pread(fd, text.data(), text.size(), anew ? 0 : source.log_begin);
  close(fd);
  text.resize(static_cast<size_t>(std::max<ssize_t>(n, 0)));
  return text;
}

// From the shim's line on, once nothing has been added for a while. Empty where the process has written nothing.
std::string OwnStacks(const StackSource& source) {
  std::string text;
  const absl::Time until = absl::Now() + kOwnStacks;
  absl::Time changed = absl::Now();
  while (absl::Now() < until && text.size() < kMaxText) {
    absl::SleepFor(kLook);
    std::string now = LogSince(source);
    if (now.size() != text.size()) changed = absl::Now();
    text = std::move(now);
    if (absl::StrContains(text, kStacksFollow) && absl::Now() - changed >= kQuiet) break;
  }
  const size_t follow = text.find(kStacksFollow);
  if (follow == std::string::npos) return "";
  const size_t line = text.find('\n', follow);
  if (line == std::string::npos || line + 1 == text.size()) return "";
  text.erase(0, line + 1);
  if (text.back() != '\n') text += '\n';
  return text;
}

// What a program prints within the limit.
std::string OutputOf(const std::string& executable, std::vector<std::string> args) {
  int ends[2];
  if (access(executable.c_str(), X_OK) != 0 || pipe2(ends, O_CLOEXEC) != 0) return "";
  auto process = Process::Spawn({.executable = executable,
                                 .args = std::move(args),
                                 .stdout_fd = ends[1],
                                 .stderr_fd = ends[1],
                                 .new_process_group = true});
  close(ends[1]);
  std::string text;
  if (process.ok()) {
    std::thread limit([&process] {
      if (!process->WaitFor(kDebugger).has_value()) process->Signal(SIGKILL);  // who is traced goes on
    });
    char buffer[4096];
    for (ssize_t n; (n = read(ends[0], buffer, sizeof(buffer))) > 0;) {
      if (text.size() < kMaxText) text.append(buffer, static_cast<size_t>(n));
    }
    limit.join();
    process->WaitFor(absl::Seconds(1));
  }
  close(ends[0]);
  return text;
}

// By a debugger, which leaves the process as it was: one that is killed between stopping a process and waiting for that
// would leave it stopped.
std::string UserStacks(int64_t pid) {
  const auto stopped = [pid] { return StateOf(Small(absl::StrCat("/proc/", pid, "/stat"))) == "T"; };
  const bool was_stopped = stopped();
  std::string text = OutputOf("/usr/bin/eu-stack", {"-p", absl::StrCat(pid)});
  if (text.empty()) {
    text = OutputOf("/usr/bin/gdb", {"-p", absl::StrCat(pid), "-batch", "-nx", "-ex", "thread apply all bt 32"});
  }
  if (!was_stopped && stopped()) KillProcess(static_cast<pid_t>(pid), SIGCONT);
  return text;
}

}  // namespace

void ReadStacks(EventLoop& loop, StackSource source, std::function<void(std::string)> done) {
  std::thread([poster = loop.poster(), source = std::move(source), done = std::move(done)] {
    std::string text = OwnStacks(source);
    const bool wrote = !text.empty();
    if (wrote) text += "seen from outside:\n";
    absl::StrAppend(&text, KernelStacks(source.pid));
    if (!wrote) absl::StrAppend(&text, UserStacks(source.pid));
    if (text.size() > kMaxText) text.resize(kMaxText);
    for (char& c : text) {  // it travels in a protobuf string, and a thread may be called anything
      if (c != '\n' && c != '\t' && (static_cast<signed char>(c) < 0x20 || c == 0x7f)) c = '?';
    }
    poster.Post([done, text = std::move(text)] { done(text); });
  }).detach();
}

}  // namespace manta::node
