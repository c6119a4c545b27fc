// The weight channel's PeerGroup: a communicator of NCCL for point-to-point sends. Internal to libmanta_cuda; see
// api.h.
//
// Joining does not block inside NCCL, so it can be given up; a failed group is aborted, which ends its kernels whatever
// the peers do. Its end is an abort as well: local, and waits for nobody.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/comm/device_transport.h"

namespace manta::cuda {

[[nodiscard]] absl::StatusOr<std::unique_ptr<comm::PeerGroup>> JoinNcclPeerGroup(int device, const std::string& id,
                                                                                 int rank, int size,
                                                                                 absl::Time deadline,
                                                                                 const comm::Check& check);

}  // namespace manta::cuda
