// absl::Status to and from grpc::Status. The codes are the same numbers; manta.v1.ErrorInfo travels in the binary
// details (grpc-status-details-bin), so that an error keeps its origin, rank, node, exit signal and last lines across
// processes. Thread-safe.
#pragma once

#include "absl/status/status.h"
#include "grpcpp/support/status.h"

namespace manta::rpc {

// Messages are cut at 8 KiB, and the oldest of last_lines are left out until the details fit in 24 KiB: a status
// travels in HTTP/2 headers, which are bounded (see channel.h).
grpc::Status ToGrpc(const absl::Status& status);

// Where the peer sent no ErrorInfo (the transport failed, or the deadline passed) one is made: origin by code, and as
// outcome NOT_STARTED where the call surely did not reach its handler, UNKNOWN where it may have, FAILED otherwise.
absl::Status FromGrpc(const grpc::Status& status);

}  // namespace manta::rpc
