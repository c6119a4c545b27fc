#include "controller/node/limits.h"

#include <sys/resource.h>

#include <utility>

#include "absl/strings/str_cat.h"

namespace manta::node {

absl::StatusOr<WorkerLimits> ApplyLimits(const v1::Limits& limits, const std::string& name) {
  WorkerLimits result;
  if (limits.open_files() > 0) {
    rlimit own{};
    getrlimit(RLIMIT_NOFILE, &own);
    if (static_cast<rlim_t>(limits.open_files()) > own.rlim_max) {
      return absl::OutOfRangeError(
          absl::StrCat("open_files: ", limits.open_files(), " is above the node agent's own limit of ", own.rlim_max));
    }
    result.resources.push_back({RLIMIT_NOFILE, static_cast<rlim_t>(limits.open_files())});
  }
  if (limits.file_bytes() > 0) result.resources.push_back({RLIMIT_FSIZE, limits.file_bytes()});
  if (limits.memory_bytes() > 0) {
    auto group = MemoryGroup::Create(name, limits.memory_bytes());
    if (group.ok()) {
      result.memory.emplace(std::move(*group));
    } else {
      result.resources.push_back({RLIMIT_DATA, limits.memory_bytes()});
      result.notes.push_back(absl::StrCat("its memory is limited by RLIMIT_DATA, each of its processes for itself: ",
                                          group.status().message()));
    }
  }
  return result;
}

}  // namespace manta::node
