#include "common/base/process_info.h"

#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdio>
#include <random>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/base/file.h"

namespace manta {

std::string internal::FindHostId() {
  std::string boot = ReadFile("/proc/sys/kernel/random/boot_id", 4096).value_or("");
  absl::StripAsciiWhitespace(&boot);
  struct stat pids {};
  struct stat users {};
  char self[32] = {};
  const bool known = !boot.empty() && stat("/proc/self/ns/pid", &pids) == 0 &&
                     stat("/proc/self/ns/user", &users) == 0 && readlink("/proc/self", self, sizeof(self) - 1) > 0 &&
                     absl::StrCat(getpid()) == self;
  if (known) return absl::StrCat(boot, ":", pids.st_ino, ":", users.st_ino);
  std::random_device random;
  return absl::StrCat("alone:", absl::Hex(random(), absl::kZeroPad8), absl::Hex(random(), absl::kZeroPad8),
                      absl::Hex(random(), absl::kZeroPad8), absl::Hex(random(), absl::kZeroPad8));
}

const std::string& HostId() {
  static const std::string* const id = new std::string(internal::FindHostId());
  return *id;
}

uint64_t ResidentBytes() {
  unsigned long long size = 0, resident = 0;
  if (FILE* file = std::fopen("/proc/self/statm", "re")) {
    if (std::fscanf(file, "%llu %llu", &size, &resident) != 2) resident = 0;
    std::fclose(file);
  }
  return resident * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

absl::Duration CpuTimeOf(int pid) {
  const std::string stat = ReadFile(absl::StrCat("/proc/", pid, "/stat"), 4096).value_or("");
  const size_t name_end = stat.rfind(')');  // a name may hold anything
  unsigned long user = 0, system = 0;
  if (name_end == std::string::npos ||
      std::sscanf(stat.c_str() + name_end + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user,
                  &system) != 2) {
    return absl::ZeroDuration();
  }
  return absl::Seconds(1) * (user + system) / sysconf(_SC_CLK_TCK);
}

int OpenPidFd(int pid) {
  return static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
}  // close-on-exec by nature

}  // namespace manta
