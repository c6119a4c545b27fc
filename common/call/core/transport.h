// What the two ends of a session write to, and the clock they go by. gRPC's streams implement these (grpc_client.h,
// grpc_server.h); so do the tests' and the simulator's networks.
//
// A link carries batches in order until it breaks; a session may have several links one after the other. Links count
// from 1; an event of an older one than the session's newest is ignored, so late events are harmless.
#pragma once

#include <chrono>
#include <functional>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "manta/v1/call.pb.h"

namespace manta::call {

// One batch at a time: the next Write comes after the session's OnWriteDone. Both are called without locks held; the
// message is the session's again when Write returns. Write must not call back into the session.
class CallBatchSink {
 public:
  virtual ~CallBatchSink() = default;
  virtual void Write(const v1::CallBatch& batch) = 0;
};

class ReplyBatchSink {
 public:
  virtual ~ReplyBatchSink() = default;
  virtual void Write(const v1::ReplyBatch& batch) = 0;
  // Ends the link with this error; events of it may still come.
  virtual void Close(const absl::Status& why) = 0;
};

// Only differences mean something.
using Clock = std::function<absl::Time()>;
inline absl::Time SteadyNow() {
  return absl::UnixEpoch() + absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch());
}

}  // namespace manta::call
