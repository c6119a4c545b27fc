// The two CPU collectives behind CreateCpuCollective. Internal to common/comm.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "common/comm/collective.h"
#include "common/comm/rendezvous.h"

namespace manta::comm {

// Bytes that a shared segment for `size` ranks has.
size_t SharedSegmentBytes(int size);

// Ranks copy through a shared segment in pieces, and wait for each other with futexes. Keeps the group's sockets to
// notice a rank that is gone.
[[nodiscard]] absl::StatusOr<std::unique_ptr<Collective>> NewSharedMemoryCollective(const CpuCollectiveOptions& options,
                                                                                    Group group);

// Each rank owns a part of the array, receives that part from all others, reduces it in rank order and sends the
// result.
[[nodiscard]] absl::StatusOr<std::unique_ptr<Collective>> NewSocketCollective(const CpuCollectiveOptions& options,
                                                                              Group group);

}  // namespace manta::comm
