// The Collective of device memory, over NCCL. Internal to libmanta_cuda; see api.h.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/comm/collective.h"

namespace manta::cuda {

[[nodiscard]] absl::StatusOr<std::unique_ptr<comm::Collective>> NewNcclCollective(
    std::shared_ptr<comm::Collective> bootstrap, absl::Duration timeout);

}  // namespace manta::cuda
