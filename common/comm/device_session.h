// The gRPC stream of WeightSource.Connect, on the source's side: a thread a reader, which runs a DeviceSource.
//
// gRPC's threads only hand messages over. A session ends when its reader leaves or dies, when the server shuts down, or
// at an error; Wait returns when all have. Thread-safe.
#pragma once

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/comm/weight_store.h"
#include "manta/v1/weights.grpc.pb.h"

namespace manta::comm {

class DeviceSessions {
 public:
  explicit DeviceSessions(WeightStore* store) : store_(store) {}
  ~DeviceSessions() { Wait(); }

  grpc::ServerBidiReactor<v1::DeviceRequest, v1::DeviceReply>* Start();

  // The server must be shutting down: nobody else ends sessions that readers keep open.
  void Wait();

 private:
  class Session;
  WeightStore* const store_;
  absl::Mutex mutex_;
  int running_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace manta::comm
