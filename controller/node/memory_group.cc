#include "controller/node/memory_group.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <optional>
#include <sstream>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/kill.h"

namespace manta::node {
namespace {

constexpr char kPrefix[] = "manta-";
constexpr char kLeaf[] = "manta-node.";

std::string Read(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

bool Write(const std::string& path, const std::string& text) {
  const int fd = open(path.c_str(), O_WRONLY | O_CLOEXEC);
  if (fd < 0) return false;
  const bool written = write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  const int error = errno;
  close(fd);
  errno = error;
  return written;
}

// "memory" among words.
bool HasWord(const std::string& words, const std::string& word) {
  std::istringstream stream(words);
  for (std::string w; stream >> w;) {
    if (w == word) return true;
  }
  return false;
}

// The value after `key` in lines of "key value".
uint64_t Field(const std::string& text, const std::string& key) {
  std::istringstream stream(text);
  for (std::string k, v; stream >> k >> v;) {
    uint64_t value = 0;
    if (k == key && absl::SimpleAtoi(v, &value)) return value;
  }
  return 0;
}

struct Base {
  std::string path;
  bool v2 = false;
};

// Where the groups of one version are mounted; `controller` empty: version 2.
std::string MountOf(const std::string& controller) {
  std::ifstream mounts("/proc/self/mounts");
  for (std::string line; std::getline(mounts, line);) {
    std::istringstream words(line);
    std::string device, path, type, options;
    words >> device >> path >> type >> options;
    if (controller.empty() ? type == "cgroup2" : type == "cgroup" && HasWord(options, controller)) return path;
    if (type != "cgroup" || controller.empty()) continue;
    for (size_t begin = 0; begin < options.size();) {
      const size_t comma = std::min(options.find(',', begin), options.size());
      if (options.substr(begin, comma - begin) == controller) return path;
      begin = comma + 1;
    }
  }
  return "";
}

// This process's own group, as /proc/self/cgroup has it: "4:memory:/a/b", or "0::/a/b".
std::string OwnGroup(const std::string& controller) {
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    std::string names = line.substr(first + 1, second - first - 1);
    for (char& c : names) c = c == ',' ? ' ' : c;
    if (controller.empty() ? names.empty() : HasWord(names, controller)) return line.substr(second + 1);
  }
  return "";
}

std::optional<Base> FindV2() {
  const std::string mount = MountOf(""), own = OwnGroup("");
  if (mount.empty() || own.empty()) return std::nullopt;
  std::string path = mount + (own == "/" ? "" : own);
  const size_t slash = path.rfind('/');
  if (slash != std::string::npos && absl::StartsWith(path.substr(slash + 1), kLeaf)) path.resize(slash);
  if (!HasWord(Read(path + "/cgroup.controllers"), "memory")) return std::nullopt;
  return Base{path, true};
}

std::optional<Base> FindV1() {
  const std::string mount = MountOf("memory"), own = OwnGroup("memory");
  if (mount.empty() || own.empty()) return std::nullopt;
  const std::string path = mount + (own == "/" ? "" : own);
  // In a container the path may be the host's: the mount is then the own group.
  return Base{access(path.c_str(), F_OK) == 0 ? path : mount, false};
}

void RemoveEmptyGroups(const std::string& base) {
  DIR* dir = opendir(base.c_str());
  if (dir == nullptr) return;
  while (const dirent* entry = readdir(dir)) {
    if (absl::StartsWith(entry->d_name, kPrefix)) rmdir(absl::StrCat(base, "/", entry->d_name).c_str());  // if it is
  }
  closedir(dir);
}

}  // namespace

void EnterLeaf() {
  if (const auto v1 = FindV1()) RemoveEmptyGroups(v1->path);
  const auto v2 = FindV2();
  if (!v2.has_value()) return;
  RemoveEmptyGroups(v2->path);
  if (HasWord(Read(v2->path + "/cgroup.subtree_control"), "memory")) return;  // by whoever delegated it
  const std::string leaf = absl::StrCat(v2->path, "/", kLeaf, getpid());
  if (mkdir(leaf.c_str(), 0755) != 0) return;
  // The agent, which has just forked this process, is to leave the group too.
  const bool moved = Write(leaf + "/cgroup.procs", "0") && Write(leaf + "/cgroup.procs", absl::StrCat(getppid()));
  if (moved && Write(v2->path + "/cgroup.subtree_control", "+memory")) return;
  Write(v2->path + "/cgroup.procs", "0");
  Write(v2->path + "/cgroup.procs", absl::StrCat(getppid()));
  rmdir(leaf.c_str());
}

absl::StatusOr<MemoryGroup> MemoryGroup::Create(const std::string& name, uint64_t limit_bytes) {
  auto base = FindV2();
  if (base.has_value() && !HasWord(Read(base->path + "/cgroup.subtree_control"), "memory")) base.reset();
  if (!base.has_value()) base = FindV1();
  if (!base.has_value()) return absl::FailedPreconditionError("no memory cgroup is mounted, or delegated to this user");
  MemoryGroup group;
  group.v2_ = base->v2;
  std::string path = absl::StrCat(base->path, "/", kPrefix, name, ".", getpid());
  if (mkdir(path.c_str(), 0755) != 0) {
    return absl::FailedPreconditionError(absl::StrCat("cannot make ", path, ": ", std::strerror(errno)));
  }
  group.path_ = path;
  const std::string limit = absl::StrCat(limit_bytes);
  if (!Write(path + (base->v2 ? "/memory.max" : "/memory.limit_in_bytes"), limit)) {
    return absl::FailedPreconditionError(absl::StrCat("cannot limit ", path, ": ", std::strerror(errno)));
  }
  // Swap counts too, where it is counted at all; and what shares the group dies together.
  Write(path + (base->v2 ? "/memory.swap.max" : "/memory.memsw.limit_in_bytes"), base->v2 ? "0" : limit);
  if (base->v2) Write(path + "/memory.oom.group", "1");
  group.procs_fd_ = open((path + "/cgroup.procs").c_str(), O_WRONLY | O_CLOEXEC);
  if (group.procs_fd_ < 0) return absl::FailedPreconditionError(absl::StrCat("cannot write ", path, "/cgroup.procs"));
  return group;
}

MemoryGroup::MemoryGroup(MemoryGroup&& other) noexcept
    : path_(std::exchange(other.path_, {})), v2_(other.v2_), procs_fd_(std::exchange(other.procs_fd_, -1)) {}

MemoryGroup::~MemoryGroup() {
  if (procs_fd_ >= 0) close(procs_fd_);
  for (int i = 0; i < 50 && !path_.empty() && rmdir(path_.c_str()) != 0 && errno == EBUSY; ++i) {
    if (!v2_ || !Write(path_ + "/cgroup.kill", "1")) {
      std::ifstream procs(path_ + "/cgroup.procs");
      for (pid_t pid; procs >> pid;) KillProcess(pid, SIGKILL);
    }
    usleep(2000);
  }
}

bool MemoryGroup::Add(int64_t pid) {
  const std::string text = absl::StrCat(pid);
  return write(procs_fd_, text.data(), text.size()) == static_cast<ssize_t>(text.size());
}

bool MemoryGroup::killed_any() const {
  return Field(Read(path_ + (v2_ ? "/memory.events" : "/memory.oom_control")), "oom_kill") > 0;
}

uint64_t MemoryGroup::peak_bytes() const {
  uint64_t bytes = 0;
  std::istringstream(Read(path_ + (v2_ ? "/memory.peak" : "/memory.max_usage_in_bytes"))) >> bytes;
  return bytes;
}

absl::Status ProbeMemoryGroups() {
  return MemoryGroup::Create("probe", uint64_t{1} << 30).status();
}

}  // namespace manta::node
