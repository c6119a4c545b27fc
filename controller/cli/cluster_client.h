// How commands reach a cluster: a folder that names its head's address and holds its token.
//
// The folder is the one given, else MANTA_DIR, else that of the run started from here last (logs/latest), else
// ~/.manta/default. A run's folder is one too: `manta run` is a cluster with one job. Calls block, each with a
// deadline. One thread.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/rpc/status.h"
#include "grpcpp/channel.h"
#include "grpcpp/client_context.h"
#include "manta/v1/cluster.grpc.pb.h"
#include "manta/v1/controller.grpc.pb.h"

namespace manta::cli {

inline constexpr absl::Duration kAnswerDeadline = absl::Seconds(10);  // of what the head answers at once

class ClusterClient {
 public:
  [[nodiscard]] static absl::StatusOr<ClusterClient> Open(const std::string& given_dir);
  [[nodiscard]] static absl::StatusOr<ClusterClient> OpenAt(const std::string& address, const std::string& token,
                                                            std::filesystem::path dir);

  const std::filesystem::path& dir() const { return dir_; }
  const std::string& address() const { return address_; }
  v1::ClusterService::Stub& cluster() { return *cluster_; }
  v1::ControllerService::Stub& runs() { return *runs_; }

  // client.Call(&v1::ClusterService::Stub::List, client.cluster(), request, kAnswerDeadline)
  template <typename Stub, typename Request, typename Reply>
  absl::StatusOr<Reply> Call(grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&, Reply*), Stub& stub,
                             const Request& request, absl::Duration deadline) const {
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(absl::Now() + deadline));
    Reply reply;
    const absl::Status status = Explain(rpc::FromGrpc((stub.*method)(&context, request, &reply)));
    if (!status.ok()) return status;
    return reply;
  }

  // Says what it means that nothing answers.
  absl::Status Explain(const absl::Status& status) const;

 private:
  std::filesystem::path dir_;
  std::string address_;
  std::unique_ptr<v1::ClusterService::Stub> cluster_;
  std::unique_ptr<v1::ControllerService::Stub> runs_;
};

}  // namespace manta::cli
