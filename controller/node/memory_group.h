// MemoryGroup: a memory cgroup for one worker and all that it starts: a limit, who was killed at it, the most that was
// used. Version 2 where this process's own group has the memory controller for groups below it, version 1 where that
// hierarchy may be written. Not thread-safe.
//
// Version 2 lets a group that has groups below it hold no process itself. EnterLeaf therefore moves the launcher into a
// leaf of its own first; that works where the group was delegated and holds this job alone (a container's, or a systemd
// unit's with Delegate=yes). Elsewhere there are no memory groups, and limits are RLIMIT_DATA.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace manta::node {

class MemoryGroup {
 public:
  // FAILED_PRECONDITION says why this machine has none.
  [[nodiscard]] static absl::StatusOr<MemoryGroup> Create(const std::string& name, uint64_t limit_bytes);
  MemoryGroup(MemoryGroup&& other) noexcept;
  MemoryGroup& operator=(MemoryGroup&&) = delete;
  ~MemoryGroup();  // ends what is left in it, and removes it

  int procs_fd() const { return procs_fd_; }  // a process that writes "0" into it is in the group
  bool Add(int64_t pid);
  bool killed_any() const;  // for want of memory
  uint64_t peak_bytes() const;

 private:
  MemoryGroup() = default;
  std::string path_;
  bool v2_ = false;
  int procs_fd_ = -1;
};

// Once in the launcher, before it forks: see above. Also removes what killed shims have left. No error: Create gives
// it.
void EnterLeaf();
// OK, or why Create would fail.
[[nodiscard]] absl::Status ProbeMemoryGroups();

}  // namespace manta::node
