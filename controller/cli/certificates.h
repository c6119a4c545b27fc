// The certificates that this command's calls show. Thread-safe.
#pragma once

#include "absl/status/status.h"

namespace manta::cli {

// Where MANTA_TLS_DIR names a folder of certificates: calls of this process show that of an admin from there, else a
// node's, else a reader's. Before any channel is opened.
[[nodiscard]] absl::Status UseCertificates();

}  // namespace manta::cli
