// Channels that live as long as the process. Thread-safe.
#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "grpcpp/channel.h"

namespace manta::cli {

// rpc::OpenChannel, and the channel is never closed: gRPC 1.51 may abort the process as it takes down the threads behind
// its callbacks when the last channel goes ("ref_counted.h: assertion failed: prior > 0"). main leaves by _exit.
[[nodiscard]] absl::StatusOr<std::shared_ptr<grpc::Channel>> OpenLastingChannel(const std::string& address,
                                                                                const std::string& token);

// Where MANTA_TLS_DIR names a folder of certificates: calls of this process show that of an admin from there, else a
// node's, else a reader's. Before any channel is opened.
[[nodiscard]] absl::Status UseCertificates();

}  // namespace manta::cli
