#include "common/comm/host_id.h"

#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include "absl/strings/str_cat.h"

namespace manta::comm {

const std::string& HostId() {
  static const std::string* const id = [] {
    std::string boot;
    std::ifstream file("/proc/sys/kernel/random/boot_id");
    if (!std::getline(file, boot) || boot.empty()) {
      char name[256] = "unknown";
      gethostname(name, sizeof(name) - 1);
      boot = name;
    }
    struct stat ns = {};
    const bool known = stat("/proc/self/ns/pid", &ns) == 0;
    return new std::string(absl::StrCat(boot, ":", known ? static_cast<uint64_t>(ns.st_ino) : 0));
  }();
  return *id;
}

}  // namespace manta::comm
