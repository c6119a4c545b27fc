#include "common/comm/transport_choice.h"

namespace manta::comm {

TransportChoice ChooseTransport(const v1::DeviceEndpoint& source, const v1::DeviceEndpoint& reader) {
  const auto host = [](std::string reason) { return TransportChoice{v1::WEIGHT_TRANSPORT_HOST, std::move(reason)}; };
  if (source.gpu().empty()) return host("the source has no GPU");
  if (reader.gpu().empty()) return host("the reader has no GPU");
  if (source.gpu() != reader.gpu()) {
    if (!source.nccl() || !reader.nccl()) return host("NCCL is not loaded on both sides");
    return {v1::WEIGHT_TRANSPORT_NCCL, ""};
  }
  if (source.host_id() != reader.host_id()) return host("both have one GPU, in containers that do not see each other");
  if (!source.cuda_ipc()) return host("the source cannot export its memory");
  if (!reader.cuda_ipc()) return host("the reader cannot open another process's memory");
  return {v1::WEIGHT_TRANSPORT_CUDA_IPC, ""};
}

const char* Name(v1::WeightTransport transport) {
  switch (transport) {
    case v1::WEIGHT_TRANSPORT_CUDA_IPC:
      return "cuda_ipc";
    case v1::WEIGHT_TRANSPORT_NCCL:
      return "nccl";
    default:
      return "host";
  }
}

}  // namespace manta::comm
