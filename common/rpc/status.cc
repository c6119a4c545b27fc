#include "common/rpc/status.h"

#include <string>

#include "common/base/status.h"
#include "manta/v1/common.pb.h"

namespace manta::rpc {
namespace {

constexpr size_t kMaxMessage = 8 << 10;
constexpr size_t kMaxDetails = 24 << 10;

v1::CallOutcome OutcomeOf(const grpc::Status& status) {
  switch (status.error_code()) {
    case grpc::StatusCode::UNAUTHENTICATED:
    case grpc::StatusCode::UNIMPLEMENTED:
      return v1::CALL_OUTCOME_NOT_STARTED;
    case grpc::StatusCode::UNAVAILABLE:
      // gRPC says so when no connection could be made; any other loss may have come after the request was read.
      return status.error_message().find("failed to connect") != std::string::npos ? v1::CALL_OUTCOME_NOT_STARTED
                                                                                   : v1::CALL_OUTCOME_UNKNOWN;
    case grpc::StatusCode::CANCELLED:
    case grpc::StatusCode::DEADLINE_EXCEEDED:
    case grpc::StatusCode::UNKNOWN:
    case grpc::StatusCode::INTERNAL:
      return v1::CALL_OUTCOME_UNKNOWN;
    default:
      return v1::CALL_OUTCOME_FAILED;
  }
}

}  // namespace

grpc::Status ToGrpc(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  v1::ErrorInfo info = GetErrorInfo(status);
  while (info.ByteSizeLong() > kMaxDetails && info.last_lines_size() > 0) {
    info.mutable_last_lines()->DeleteSubrange(0, 1);
  }
  std::string message(status.message().substr(0, kMaxMessage));
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), message, info.SerializeAsString());
}

absl::Status FromGrpc(const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  absl::Status result(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
  v1::ErrorInfo info;
  if (!status.error_details().empty() && info.ParseFromString(status.error_details())) {
    return WithErrorInfo(std::move(result), info);
  }
  info = GetErrorInfo(result);
  info.set_outcome(OutcomeOf(status));
  info.set_retryable(info.outcome() == v1::CALL_OUTCOME_NOT_STARTED &&
                     status.error_code() == grpc::StatusCode::UNAVAILABLE);
  return WithErrorInfo(std::move(result), info);
}

}  // namespace manta::rpc
