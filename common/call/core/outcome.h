// What is known of a failed call's effect, written into its status: NOT_STARTED (safe to send again), UNKNOWN (it may
// have run), FAILED (it ran and failed). Thread-safe: functions of values.
#pragma once

#include "absl/status/status.h"
#include "manta/v1/common.pb.h"

namespace manta::call {

// `status` with that outcome and, where given, that origin; what else its ErrorInfo says is kept.
absl::Status WithOutcome(const absl::Status& status, v1::CallOutcome outcome,
                         v1::Origin origin = v1::ORIGIN_UNSPECIFIED);
absl::Status NotStarted(const absl::Status& status, v1::Origin origin = v1::ORIGIN_UNSPECIFIED);
absl::Status Unknown(const absl::Status& status, v1::Origin origin = v1::ORIGIN_UNSPECIFIED);
// A handler's own error: FAILED unless it says otherwise.
absl::Status Failed(const absl::Status& status);

v1::CallOutcome OutcomeOf(const absl::Status& status);

}  // namespace manta::call
