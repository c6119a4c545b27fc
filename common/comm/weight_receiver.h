// ReceiveWeights: brings a version of the weights from its holders into this process's memory.
//
// Every holder is asked what it has; the plan (weight_plan.h) then says what comes from whom. Bytes come through shared
// memory from holders of this host and in gRPC chunks from others, one thread a holder. A holder that is gone, has
// dropped the version or sends damaged bytes is left out, and what was to come from it comes from another holder that
// has it.
//
// Blocking; call it on a lane's thread. Destination memory is written while it runs and is unspecified after an error:
// give it memory that is not in use, and swap. Thread-safe for different destinations.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/comm/weight_store.h"
#include "grpcpp/channel.h"
#include "manta/v1/weights.pb.h"

namespace manta::comm {

// A slice that is wanted, and where it goes, row-major.
struct DestinationSlice {
  SliceSpec spec;
  void* data = nullptr;
};

struct ReceiveOptions {
  uint64_t min_version = 0;                    // versions never go back: FAILED_PRECONDITION for an older one
  bool verify = false;                         // compare checksums of all bytes
  absl::Duration timeout = absl::Minutes(10);  // for everything
  bool allow_shared_memory = true;
  CopyFunction copy;  // from host memory to the destination's; null: memcpy
};

struct ReceiveReport {
  uint64_t version = 0;
  uint64_t bytes = 0;
  uint64_t shared_memory_bytes = 0;  // of `bytes`; the others came by gRPC
  int failed_sources = 0;
  double seconds = 0;
  bool device = false;    // straight from GPU memory to GPU memory
  std::string transport;  // "shared_memory", "grpc", "cuda_ipc", "nccl"; several with a plus
};

// A channel to another process of the job, by address.
using ChannelOpener = std::function<absl::StatusOr<std::shared_ptr<grpc::Channel>>(const std::string& address)>;

// `sources.version` 0 takes the newest that any of them has. Errors name the parameter that nobody has (any more) and
// what became of each holder; DATA_LOSS where checksums differ and no other holder is left.
[[nodiscard]] absl::StatusOr<ReceiveReport> ReceiveWeights(const v1::WeightSources& sources,
                                                           const ChannelOpener& open_channel,
                                                           absl::Span<const DestinationSlice> destinations,
                                                           const ReceiveOptions& options = {});

}  // namespace manta::comm
