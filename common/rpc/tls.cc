#include "common/rpc/tls.h"

#include <sys/stat.h>

#include <cerrno>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "common/base/file.h"
#include "common/base/status.h"
#include "common/rpc/certificate_name.h"
#include "common/rpc/certificates.h"
#include "common/rpc/refusals.h"
#include "common/rpc/tls_snapshot.h"
#include "common/rpc/token.h"
#include "grpcpp/security/tls_certificate_verifier.h"
#include "grpcpp/security/tls_credentials_options.h"

namespace manta::rpc {
namespace {

class Verifier : public grpc::experimental::ExternalCertificateVerifier {
 public:
  Verifier(std::string job, RoleSet roles) : job_(std::move(job)), roles_(roles) {}
  bool Verify(grpc::experimental::TlsCustomVerificationCheckRequest* request, std::function<void(grpc::Status)>,
              grpc::Status* status) override {
    const std::vector<grpc::string_ref> uris = request->uri_names();
    const std::string uri = uris.size() == 1 ? std::string(uris[0].data(), uris[0].size()) : "";
    const auto name = CertificateName::Parse(uri);
    std::string why;
    if (!name.has_value()) {
      why = "the certificate names no job (one URI manta://JOB/ROLE/NAME was expected)";
    } else if (name->job != job_) {
      why = absl::StrCat("the certificate is of job ", name->job, ", not of ", job_);
    } else if ((RoleBit(name->role) & roles_) == 0) {
      why = absl::StrCat("the certificate is of ", RoleName(name->role), ", not of ", RoleNames(roles_));
    }
    if (!why.empty()) Refuse(Refusal::kCertificate, absl::StrCat("certificate=", uri, " because ", why));
    *status = why.empty() ? grpc::Status::OK : grpc::Status(grpc::StatusCode::UNAUTHENTICATED, why);
    return true;
  }
  void Cancel(grpc::experimental::TlsCustomVerificationCheckRequest*) override {}

 private:
  const std::string job_;
  const RoleSet roles_;
};

absl::StatusOr<std::string> JobOf(const TlsFiles& files, const std::string& uri) {
  const auto name = CertificateName::Parse(uri);
  if (!name.has_value()) {
    return UserError(absl::StrCat(files.certificate.string(), ": names no job (URI manta://JOB/ROLE/NAME expected)"));
  }
  return name->job;
}

void SetCommon(grpc::experimental::TlsCredentialsOptions& options, const std::string& job, RoleSet roles) {
  options.watch_root_certs();
  options.watch_identity_key_cert_pairs();
  options.set_check_call_host(false);
  options.set_certificate_verifier(grpc::experimental::ExternalCertificateVerifier::Create<Verifier>(job, roles));
}

absl::Mutex& ProcessMutex() {
  static auto& mutex = *new absl::Mutex();
  return mutex;
}
std::optional<TlsFiles>& ProcessFiles() {
  static auto& files = *new std::optional<TlsFiles>();
  return files;
}

}  // namespace

absl::StatusOr<TlsFiles> TlsFilesIn(const std::filesystem::path& dir, const std::string& name) {
  TlsFiles files{.ca = dir / "ca.pem", .certificate = dir / (name + ".pem"), .key = dir / (name + ".key")};
  for (const auto& path : {files.ca, files.certificate, files.key}) {
    struct stat st;
    if (stat(path.c_str(), &st) != 0) return ErrnoError("read", path, errno);
    if (path == files.key && !IsPrivate(st)) {
      return UserError(absl::StrCat(path.string(), ": others can read the private key; expected mode 0600"));
    }
  }
  return files;
}

absl::Status UseTlsFromEnvironment(const std::string& name, v1::Role role) {
  const char* dir = std::getenv("MANTA_TLS_DIR");
  if (dir == nullptr || *dir == '\0') return absl::OkStatus();
  absl::StatusOr<TlsFiles> files = TlsFilesIn(dir, name.empty() ? std::string(RoleName(role)) : name);
  if (absl::IsNotFound(files.status())) files = TlsFilesIn(dir, std::string(RoleName(role)));
  MANTA_RETURN_IF_ERROR(files.status());
  MANTA_ASSIGN_OR_RETURN(const TlsSnapshot* snapshot, TlsSnapshot::Of(*files));
  MANTA_RETURN_IF_ERROR(JobOf(*files, snapshot->uri()).status());
  MANTA_ASSIGN_OR_RETURN(const absl::Time until, ValidUntil(files->certificate));
  if (until <= absl::Now()) {
    return UserError(absl::StrCat(files->certificate.string(), " was valid until ", absl::FormatTime(until),
                                  "; `manta init-certs` renews it"));
  }
  SetProcessTls(*std::move(files));
  return absl::OkStatus();
}

void SetProcessTls(std::optional<TlsFiles> files) {
  absl::MutexLock lock(&ProcessMutex());
  ProcessFiles() = std::move(files);
}

std::optional<TlsFiles> ProcessTls() {
  absl::MutexLock lock(&ProcessMutex());
  return ProcessFiles();
}

absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> TlsServer(const TlsFiles& files) {
  MANTA_ASSIGN_OR_RETURN(TlsSnapshot* const snapshot, TlsSnapshot::Of(files));
  MANTA_ASSIGN_OR_RETURN(const std::string job, JobOf(files, snapshot->uri()));
  grpc::experimental::TlsServerCredentialsOptions options(snapshot->provider());
  SetCommon(options, job, kEveryRole);
  options.set_cert_request_type(GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  return grpc::experimental::TlsServerCredentials(options);
}

absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> TlsChannel(const TlsFiles& files, RoleSet roles) {
  MANTA_ASSIGN_OR_RETURN(TlsSnapshot* const snapshot, TlsSnapshot::Of(files));
  MANTA_ASSIGN_OR_RETURN(const std::string job, JobOf(files, snapshot->uri()));
  grpc::experimental::TlsChannelCredentialsOptions options;
  options.set_certificate_provider(snapshot->provider());
  SetCommon(options, job, roles);
  return grpc::experimental::TlsCredentials(options);
}

}  // namespace manta::rpc
