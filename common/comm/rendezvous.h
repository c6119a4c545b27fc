// Rendezvous: brings the ranks of a group together and leaves each with a socket to every other and, where all are on
// one host, a shared segment of memory. See cpu_collective.h for the rules; internal to common/comm.
#pragma once

#include <cstddef>
#include <vector>

#include "absl/status/statusor.h"
#include "common/comm/cpu_collective.h"
#include "common/comm/socket.h"

namespace manta::comm {

// What a rank holds of its group after joining.
struct Group {
  std::vector<Fd> peers;  // [size] non-blocking stream sockets; the own place is empty
  Fd shared_memory;       // empty: not shared
};

// `shared_memory_bytes` is what rank 0 makes the segment (zeros), should all ranks be on one host. size >= 2.
[[nodiscard]] absl::StatusOr<Group> JoinGroup(const CpuCollectiveOptions& options, size_t shared_memory_bytes);

// The ErrorInfo'd status for a rank whose process is gone.
[[nodiscard]] absl::Status PeerGone(int rank, std::string_view detail);

}  // namespace manta::comm
