#include "common/base/process_info.h"

#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdio>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/base/file.h"

namespace manta {

std::string HostId() {
  std::string boot = ReadFile("/proc/sys/kernel/random/boot_id", 4096).value_or("unknown");
  absl::StripAsciiWhitespace(&boot);
  struct stat st {};
  stat("/dev/shm", &st);
  return absl::StrCat(boot, ":", static_cast<uint64_t>(st.st_dev));
}

uint64_t ResidentBytes() {
  unsigned long long size = 0, resident = 0;
  if (FILE* file = std::fopen("/proc/self/statm", "re")) {
    if (std::fscanf(file, "%llu %llu", &size, &resident) != 2) resident = 0;
    std::fclose(file);
  }
  return resident * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

int OpenPidFd(int pid) {
  return static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
}  // close-on-exec by nature

}  // namespace manta
