// Finds the processes that a test has started, and theirs: a mark in the environment is inherited by all of them, so
// one that has lost its parent is found too.
#pragma once

#include <dirent.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/file.h"

namespace manta::testing {

constexpr char kMarkVariable[] = "MANTA_TEST_MARK";

struct FoundProcess {
  int pid;
  std::string command;  // argv, separated by blanks
  std::string actor;    // MANTA_ACTOR_ID: of a worker, and of what it has started
};

// Every process with kMarkVariable=mark that runs; a zombie has ended.
inline std::vector<FoundProcess> MarkedProcesses(const std::string& mark) {
  std::vector<FoundProcess> found;
  DIR* proc = opendir("/proc");
  while (const dirent* entry = readdir(proc)) {
    int pid;
    if (!absl::SimpleAtoi(entry->d_name, &pid) || pid == getpid()) continue;
    const std::string environment = ReadFile(absl::StrCat("/proc/", pid, "/environ")).value_or("");
    if (environment.find(absl::StrCat(kMarkVariable, "=", mark, std::string(1, '\0'))) == std::string::npos) continue;
    const std::string stat = ReadFile(absl::StrCat("/proc/", pid, "/stat")).value_or("");
    const size_t paren = stat.rfind(')');
    if (paren == std::string::npos || paren + 2 >= stat.size() || stat[paren + 2] == 'Z') continue;
    std::string command = ReadFile(absl::StrCat("/proc/", pid, "/cmdline")).value_or("");
    for (char& c : command) c = c == '\0' ? ' ' : c;
    // Variables end in zeros; the first has none before it.
    const std::string before = std::string(1, '\0') + environment;
    const size_t actor = before.find(std::string("\0MANTA_ACTOR_ID=", 16));
    found.push_back({pid, command, actor == std::string::npos ? "" : before.c_str() + actor + 16});
  }
  closedir(proc);
  return found;
}

}  // namespace manta::testing
