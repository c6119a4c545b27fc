// Which way weights go from one process to another. A pure function of where the two compute.
#pragma once

#include <string>

#include "manta/v1/weights.pb.h"

namespace manta::comm {

struct TransportChoice {
  v1::WeightTransport transport = v1::WEIGHT_TRANSPORT_HOST;
  std::string reason;  // why the host's memory is used; empty otherwise
};

// The same GPU: CUDA IPC, where both processes can see each other and have it (NCCL refuses two ranks on a GPU).
// Different GPUs: NCCL, where both have it. Anything else: the host's memory.
TransportChoice ChooseTransport(const v1::DeviceEndpoint& source, const v1::DeviceEndpoint& reader);

// "cuda_ipc", "nccl", "host".
const char* Name(v1::WeightTransport transport);

}  // namespace manta::comm
