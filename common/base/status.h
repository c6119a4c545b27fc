// Status is how Manta reports what goes wrong in the world; MANTA_CHECK (check.h) is for what cannot happen.
//
// Functions that can fail return absl::Status or absl::StatusOr<T>. What crosses a process carries more than a code and a
// message: manta.v1.ErrorInfo (origin, rank, node, exit signal, last lines of stderr), kept as a payload of the status and
// carried in gRPC's binary details by common/rpc. Everything here is thread-safe; statuses are values.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "manta/v1/common.pb.h"

namespace manta {

// Returns `status` with `info` attached (nothing is attached to an OK status).
[[nodiscard]] absl::Status WithErrorInfo(absl::Status status, const v1::ErrorInfo& info);

// What is attached, or a default ErrorInfo (rank -1, exit_code -1) whose origin follows from the code.
[[nodiscard]] v1::ErrorInfo GetErrorInfo(const absl::Status& status);

// The same error with "context: " before its message; payloads are kept.
[[nodiscard]] absl::Status Annotate(const absl::Status& status, std::string_view context);

// An error of the user's making: bad configuration, data or model files. Exit code 64.
[[nodiscard]] absl::Status UserError(std::string_view message);

// To and from the message that replies carry. common/rpc uses the same fields.
[[nodiscard]] v1::Status ToProto(const absl::Status& status);
[[nodiscard]] absl::Status FromProto(const v1::Status& status);

// The process exit code for a status: 0 ok, 1 user failure, 64 configuration or bad input, 69 infrastructure.
int ExitCode(const absl::Status& status);

}  // namespace manta

#define MANTA_RETURN_IF_ERROR(expr)                                          \
  do {                                                                       \
    if (::absl::Status manta_status_ = (expr); !manta_status_.ok()) return manta_status_; \
  } while (false)

#define MANTA_CONCAT_INNER_(a, b) a##b
#define MANTA_CONCAT_(a, b) MANTA_CONCAT_INNER_(a, b)

// MANTA_ASSIGN_OR_RETURN(auto value, Function());
#define MANTA_ASSIGN_OR_RETURN(lhs, expr) MANTA_ASSIGN_OR_RETURN_IMPL_(MANTA_CONCAT_(manta_statusor_, __LINE__), lhs, expr)
#define MANTA_ASSIGN_OR_RETURN_IMPL_(tmp, lhs, expr) \
  auto tmp = (expr);                                 \
  if (!tmp.ok()) return tmp.status();                \
  lhs = std::move(tmp).value()
