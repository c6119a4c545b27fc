// Mutual TLS within a job: files of this process, and the credentials made of them.
//
// Both sides show a certificate of the job's CA and check the other's: its chain, its time, and that the URI among its
// names is of the same job (certificate_name.h). Host names are not looked at: nodes come and go, the CA is the job's
// own. A change of the files is taken over within two seconds, a certificate and its key together (tls_snapshot.h), so
// certificates and the CA are rotated without a restart; connections that stand go on. Thread-safe.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "common/rpc/keys.h"
#include "grpcpp/security/credentials.h"
#include "grpcpp/security/server_credentials.h"

namespace manta::rpc {

struct TlsFiles {
  std::filesystem::path ca, certificate, key;  // PEM
};

// DIR/ca.pem, DIR/NAME.pem, DIR/NAME.key, as `manta init-certs` writes them; NAME is a role's or a node's.
// NOT_FOUND and INVALID_ARGUMENT name the file that is missing or that others can read.
[[nodiscard]] absl::StatusOr<TlsFiles> TlsFilesIn(const std::filesystem::path& dir, const std::string& name);

// What servers and channels of this process use that are not told otherwise: set once, at the start of main. None:
// loopback and plain text.
void SetProcessTls(std::optional<TlsFiles> files);
std::optional<TlsFiles> ProcessTls();

// At the start of main, before anything is served or called: where the environment variable MANTA_TLS_DIR names a
// folder of certificates, this process uses NAME's from it, or where there are none those of its role. INVALID_ARGUMENT
// also for a certificate that is valid no more: every handshake would fail without saying so.
[[nodiscard]] absl::Status UseTlsFromEnvironment(const std::string& name, v1::Role role);

// INVALID_ARGUMENT where the files do not belong together or name no job.
[[nodiscard]] absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> TlsServer(const TlsFiles& files);
// Only servers whose certificates are of one of `roles` are talked to.
[[nodiscard]] absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> TlsChannel(const TlsFiles& files,
                                                                                   RoleSet roles);

}  // namespace manta::rpc
