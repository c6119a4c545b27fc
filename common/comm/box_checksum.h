// BoxChecksum: what the test mode compares on the two sides of a transfer between GPUs.
#pragma once

#include "common/comm/transfer_buckets.h"

namespace manta::comm {

// Hash64 of a box's bytes, row-major, wherever they lie. Copies the array that they are part of to the host: slow.
[[nodiscard]] absl::StatusOr<uint64_t> BoxChecksum(DeviceTransport& transport, const PlacedBox& box,
                                                   absl::Time deadline);

}  // namespace manta::comm
