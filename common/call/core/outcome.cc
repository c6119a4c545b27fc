#include "common/call/core/outcome.h"

#include "common/base/status.h"

namespace manta::call {

absl::Status WithOutcome(const absl::Status& status, v1::CallOutcome outcome, v1::Origin origin) {
  v1::ErrorInfo info = GetErrorInfo(status);
  info.set_outcome(outcome);
  info.set_retryable(
      outcome == v1::CALL_OUTCOME_NOT_STARTED &&
      (status.code() == absl::StatusCode::kUnavailable || status.code() == absl::StatusCode::kResourceExhausted));
  if (origin != v1::ORIGIN_UNSPECIFIED) info.set_origin(origin);
  return WithErrorInfo(status, info);
}

absl::Status NotStarted(const absl::Status& status, v1::Origin origin) {
  return WithOutcome(status, v1::CALL_OUTCOME_NOT_STARTED, origin);
}

absl::Status Unknown(const absl::Status& status, v1::Origin origin) {
  return WithOutcome(status, v1::CALL_OUTCOME_UNKNOWN, origin);
}

absl::Status Failed(const absl::Status& status) {
  return OutcomeOf(status) == v1::CALL_OUTCOME_UNSPECIFIED ? WithOutcome(status, v1::CALL_OUTCOME_FAILED) : status;
}

v1::CallOutcome OutcomeOf(const absl::Status& status) {
  return GetErrorInfo(status).outcome();
}

}  // namespace manta::call
