#include "common/rpc/credentials.h"

#include <cstdlib>
#include <map>
#include <utility>

#include "absl/strings/match.h"
#include "common/rpc/token.h"
#include "grpc/support/log.h"
#include "grpcpp/security/auth_metadata_processor.h"

namespace manta::rpc {
namespace {

constexpr char kTokenKey[] = "x-manta-token";

class TokenChecker : public grpc::AuthMetadataProcessor {
 public:
  explicit TokenChecker(std::string token) : token_(std::move(token)) {}
  bool IsBlocking() const override { return false; }
  grpc::Status Process(const InputMetadata& metadata, grpc::AuthContext*, OutputMetadata* consumed,
                       OutputMetadata*) override {
    const auto found = metadata.find(kTokenKey);
    if (found == metadata.end()) return {grpc::StatusCode::UNAUTHENTICATED, "the call carries no job token"};
    if (!TokensEqual(std::string_view(found->second.data(), found->second.size()), token_)) {
      return {grpc::StatusCode::UNAUTHENTICATED, "the call carries another job's token"};
    }
    consumed->emplace(kTokenKey, token_);
    return grpc::Status::OK;
  }

 private:
  const std::string token_;
};

class TokenSender : public grpc::MetadataCredentialsPlugin {
 public:
  explicit TokenSender(std::string token) : token_(std::move(token)) {}
  bool IsBlocking() const override { return false; }
  grpc::Status GetMetadata(grpc::string_ref, grpc::string_ref, const grpc::AuthContext&,
                           std::multimap<std::string, std::string>* metadata) override {
    metadata->emplace(kTokenKey, token_);
    return grpc::Status::OK;
  }

 private:
  const std::string token_;
};

}  // namespace

std::shared_ptr<grpc::ServerCredentials> LoopbackServerCredentials(const std::string& token) {
  auto credentials = grpc::experimental::LocalServerCredentials(LOCAL_TCP);
  credentials->SetAuthMetadataProcessor(std::make_shared<TokenChecker>(token));
  return credentials;
}

std::shared_ptr<grpc::ChannelCredentials> LoopbackChannelCredentials(const std::string& token) {
  // Loopback is plain text: the token may travel over it, and over nothing else (the credentials refuse other peers).
  return grpc::CompositeChannelCredentials(
      grpc::experimental::LocalCredentials(LOCAL_TCP),
      grpc::experimental::MetadataCredentialsFromPlugin(std::make_unique<TokenSender>(token), GRPC_SECURITY_NONE));
}

bool IsLoopback(const std::string& address) {
  return absl::StartsWith(address, "127.") || absl::StartsWith(address, "[::1]:") ||
         absl::StartsWith(address, "localhost:");
}

void SilenceGrpcLog() {
  static const bool done = [] {
    if (std::getenv("GRPC_VERBOSITY") == nullptr) gpr_set_log_function([](gpr_log_func_args*) {});
    return true;
  }();
  (void)done;
}

}  // namespace manta::rpc
