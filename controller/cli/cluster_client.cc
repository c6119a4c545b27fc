#include "controller/cli/cluster_client.h"

#include "absl/strings/match.h"
#include "common/actor/cluster.h"
#include "common/base/status.h"
#include "common/rpc/channel.h"
#include "common/rpc/token.h"
#include "controller/cli/certificates.h"

namespace manta::cli {
namespace {

namespace fs = std::filesystem;

}  // namespace

absl::StatusOr<ClusterClient> ClusterClient::Open(const std::string& given_dir) {
  MANTA_ASSIGN_OR_RETURN(const fs::path dir, actor::FindClusterFolder(given_dir));
  MANTA_ASSIGN_OR_RETURN(const std::string address, actor::ReadHeadAddress(dir));
  absl::StatusOr<std::string> token = rpc::ReadTokenFile(dir / "token");
  for (const char* other : {"token.node", "token.reader"}) {  // of who may do less
    if (absl::IsNotFound(token.status())) token = rpc::ReadTokenFile(dir / other);
  }
  MANTA_RETURN_IF_ERROR(token.status());
  return OpenAt(address, *token, dir);
}

absl::StatusOr<ClusterClient> ClusterClient::OpenAt(const std::string& address, const std::string& token,
                                                    fs::path dir) {
  MANTA_RETURN_IF_ERROR(UseCertificates());
  MANTA_ASSIGN_OR_RETURN(const auto channel, rpc::OpenChannel(address, token));
  ClusterClient client;
  client.dir_ = std::move(dir);
  client.address_ = address;
  client.cluster_ = v1::ClusterService::NewStub(channel);
  client.runs_ = v1::ControllerService::NewStub(channel);
  return client;
}

absl::Status ClusterClient::Explain(const absl::Status& status) const {
  if (absl::IsUnavailable(status) && absl::StrContains(status.message(), "connect")) {
    v1::ErrorInfo info = GetErrorInfo(status);
    return WithErrorInfo(absl::UnavailableError(absl::StrCat(dir_.string(), ": nothing answers at ", address_,
                                                             ": its controller has ended")),
                         info);
  }
  return status;
}

}  // namespace manta::cli
