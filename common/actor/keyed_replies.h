// Results of calls that change something, kept under the caller's key, so that asking again is not doing again.
//
// A head that was killed in the middle of a step runs the step again. The calls that change a worker (an optimiser step,
// a checkpoint) then carry the keys that they carried before, and one that had run answers with what it answered then.
// A caller that only wants to know what came of a call, and not to make it, asks with `kept_only`.
//
// The last `most` results are kept, errors too: what failed has run. Keys are the caller's; the same key with another
// request is a caller's mistake and is refused. Not thread-safe: one lane's, so a second call with a key waits, as every
// call does, for the first one to end.
#pragma once

#include <cstdint>
#include <deque>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "google/protobuf/message.h"
#include "grpcpp/server_context.h"

namespace manta::actor {

// How a unary call names its key, in its metadata (rpc::CallOptions::key).
struct CallKey {
  std::string key;         // empty: none
  bool kept_only = false;  // NOT_FOUND where nothing is kept

  static CallKey Of(const grpc::CallbackServerContext& context);
};

class KeyedReplies {
 public:
  explicit KeyedReplies(size_t most = 8) : most_(most) {}

  // Runs `call`, which fills `reply`, and keeps what came of it, or fills `reply` with what is kept under the key. Without
  // a key it only runs. FAILED_PRECONDITION for a key that is kept with another request.
  absl::Status Run(const CallKey& key, const google::protobuf::Message& request, google::protobuf::Message* reply,
                   absl::FunctionRef<absl::Status()> call);

 private:
  struct Kept {
    std::string key;
    size_t request;  // its fingerprint
    absl::Status status;
    std::string reply;
  };

  const size_t most_;
  std::deque<Kept> kept_;  // the oldest first
};

}  // namespace manta::actor
