#include "controller/cli/certificates.h"

#include "common/rpc/tls.h"

namespace manta::cli {

absl::Status UseCertificates() {
  absl::Status status;
  for (const v1::Role role : {v1::ROLE_ADMIN, v1::ROLE_NODE, v1::ROLE_READER}) {
    status = rpc::UseTlsFromEnvironment("", role);
    if (!absl::IsNotFound(status)) break;
  }
  return status;
}

}  // namespace manta::cli
