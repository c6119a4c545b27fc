// One who knows a server's address, its CA and even a token, but has no certificate of that CA's that is valid: a client
// that takes any server for the right one and shows the certificate that it has.
#pragma once

#include <memory>
#include <string>

#include "common/base/file.h"
#include "common/rpc/credentials.h"
#include "common/rpc/keys.h"
#include "common/rpc/tls.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/security/tls_certificate_provider.h"
#include "grpcpp/security/tls_certificate_verifier.h"
#include "grpcpp/security/tls_credentials_options.h"

namespace manta::testing {

class AnyServer : public grpc::experimental::ExternalCertificateVerifier {
 public:
  bool Verify(grpc::experimental::TlsCustomVerificationCheckRequest*, std::function<void(grpc::Status)>,
              grpc::Status* status) override {
    *status = grpc::Status::OK;
    return true;
  }
  void Cancel(grpc::experimental::TlsCustomVerificationCheckRequest*) override {}
};

// `shown.ca` is the server's.
inline std::shared_ptr<grpc::Channel> StrangersChannel(const std::string& address, const rpc::TlsFiles& shown,
                                                       const std::string& keys) {
  grpc::experimental::TlsChannelCredentialsOptions options;
  options.set_certificate_provider(std::make_shared<grpc::experimental::StaticDataCertificateProvider>(
      ReadFile(shown.ca).value(),
      std::vector<grpc::experimental::IdentityKeyCertPair>{
          {ReadFile(shown.key).value(), ReadFile(shown.certificate).value()}}));
  options.watch_root_certs();
  options.watch_identity_key_cert_pairs();
  options.set_check_call_host(false);
  options.set_certificate_verifier(grpc::experimental::ExternalCertificateVerifier::Create<AnyServer>());
  rpc::SilenceGrpcLog();
  return grpc::CreateChannel(address, rpc::WithToken(grpc::experimental::TlsCredentials(options),
                                                     rpc::Keys::Parse(keys).value().token(), /*loopback=*/false));
}

}  // namespace manta::testing
