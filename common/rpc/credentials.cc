#include "common/rpc/credentials.h"

#include <arpa/inet.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/rpc/call_guard.h"
#include "common/rpc/refusals.h"
#include "grpc/support/log.h"

namespace manta::rpc {
namespace {

class TokenSender : public grpc::MetadataCredentialsPlugin {
 public:
  explicit TokenSender(std::string token) : token_(std::move(token)) {}
  bool IsBlocking() const override { return false; }
  grpc::Status GetMetadata(grpc::string_ref, grpc::string_ref, const grpc::AuthContext&,
                           std::multimap<std::string, std::string>* metadata) override {
    metadata->emplace(CallGuard::kTokenKey, token_);
    return grpc::Status::OK;
  }

 private:
  const std::string token_;
};

void CountHandshakes(const char* message) {
  constexpr absl::string_view kFailed = "Handshake failed";
  if (absl::StartsWith(message, kFailed)) Refuse(Refusal::kTls, absl::StrCat("because ", message));
}

}  // namespace

std::shared_ptr<grpc::ServerCredentials> LoopbackServer() {
  return grpc::experimental::LocalServerCredentials(LOCAL_TCP);
}

std::shared_ptr<grpc::ChannelCredentials> LoopbackChannel() {
  return grpc::experimental::LocalCredentials(LOCAL_TCP);
}

std::shared_ptr<grpc::ChannelCredentials> WithToken(std::shared_ptr<grpc::ChannelCredentials> channel,
                                                    const std::string& token, bool loopback) {
  const grpc_security_level level = loopback ? GRPC_SECURITY_NONE : GRPC_PRIVACY_AND_INTEGRITY;
  return grpc::CompositeChannelCredentials(
      channel, grpc::experimental::MetadataCredentialsFromPlugin(std::make_unique<TokenSender>(token), level));
}

bool IsLoopback(const std::string& address) {
  const size_t colon = address.rfind(':');
  const std::string host = address.substr(0, colon);
  if (host == "localhost" || host == "[::1]") return colon != std::string::npos;
  in_addr numbers{};
  return colon != std::string::npos && inet_pton(AF_INET, host.c_str(), &numbers) == 1 &&
         (ntohl(numbers.s_addr) >> 24) == 127;
}

void SilenceGrpcLog() {
  static const bool done = [] {
    if (std::getenv("GRPC_VERBOSITY") == nullptr) {
      gpr_set_log_function([](gpr_log_func_args* line) { CountHandshakes(line->message); });
    } else {
      gpr_set_log_function([](gpr_log_func_args* line) {
        CountHandshakes(line->message);
        std::fprintf(stderr, "gRPC %s %s:%d %s\n", gpr_log_severity_string(line->severity), line->file, line->line,
                     line->message);
      });
    }
    return true;
  }();
  (void)done;
}

}  // namespace manta::rpc
