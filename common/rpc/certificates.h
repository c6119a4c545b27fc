// Certificates of a job: a CA of its own, and a certificate for each role and each node, made with OpenSSL.
//
//   DIR/ca.pem, ca.key                       the job's CA; no process of the job reads ca.key: it makes certificates
//   DIR/admin.pem, admin.key                 the controller's, and the command line's
//   DIR/node.pem, worker.pem, reader.pem     likewise, each with its key
//   DIR/NAME.pem, NAME.key                   one a node that was named, in the role node
//
// P-256 keys; a certificate names its holder by the URI manta://JOB/ROLE/NAME (certificate_name.h), and
// says role and job again as the host name ROLE.JOB.manta. Keys are 0600.
// Every file is replaced atomically, the key before its certificate: processes that watch them (tls.h) take the new
// pair over while they run.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/rpc/certificate_name.h"

namespace manta::rpc {

struct CertificateOptions {
  std::string job;                 // letters, digits, '.', '-', '_'
  std::vector<std::string> nodes;  // likewise; none of them a role's name
  absl::Duration valid = absl::Hours(24 * 30);
  absl::Duration ca_valid = absl::Hours(24 * 365);
  absl::Time from = absl::InfinitePast();  // of the certificates; default: five minutes ago, for clocks that differ
};

// What becomes of the CA. Its rotation takes three calls, with time between them for every process to see the files:
// kAdd, kKeep, kDropOld.
enum class CaStep {
  kKeep,     // makes one where there is none, and all certificates anew
  kAdd,      // a new CA comes first in ca.pem, the old one stays in it; the certificates are left to the next call
  kDropOld,  // ca.pem holds the newest CA alone
};

[[nodiscard]] absl::Status InitCertificates(const std::filesystem::path& dir, const CertificateOptions& options,
                                            CaStep step = CaStep::kKeep);

// The URI that the certificate names its holder by (empty: none). INVALID_ARGUMENT where a file is no PEM of its kind,
// the key is not the certificate's, or the CA has not signed it.
[[nodiscard]] absl::StatusOr<std::string> CheckFilesFit(const std::filesystem::path& ca,
                                                        const std::filesystem::path& certificate,
                                                        const std::filesystem::path& key);

// The same of what such files say.
struct PemFile {
  std::string path, content;
};
[[nodiscard]] absl::StatusOr<std::string> CheckFit(const PemFile& ca, const PemFile& certificate, const PemFile& key);
bool HoldsCertificates(const PemFile& file);

// Whom the certificates in the folder are of, by name. INVALID_ARGUMENT where one names nobody.
[[nodiscard]] absl::StatusOr<std::vector<CertificateName>> HoldersIn(const std::filesystem::path& dir);

// When the certificate (the first in the file) ends to be valid. INVALID_ARGUMENT where the file holds none.
[[nodiscard]] absl::StatusOr<absl::Time> ValidUntil(const std::filesystem::path& certificate);

}  // namespace manta::rpc
