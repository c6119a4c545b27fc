// The weight channel's DeviceTransport over CUDA IPC and NCCL. Internal to libmanta_cuda; see api.h.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "common/comm/device_transport.h"

namespace manta::cuda {

[[nodiscard]] absl::StatusOr<std::shared_ptr<comm::DeviceTransport>> NewDeviceTransport(int device);

// Queues copies on the stream.
[[nodiscard]] absl::Status QueueCopies(absl::Span<const comm::CopyRun> runs, void* stream);

}  // namespace manta::cuda
