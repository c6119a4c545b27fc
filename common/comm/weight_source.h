// WeightSourceService: serves what a WeightStore holds, by shared memory to readers of the same host and in chunks to
// all others, and from GPU to GPU to those that Connect (proto/manta/v1/weights.proto). Trainer ranks serve one; a
// generator that has received a version can as well.
//
// Handlers do no more than look up and copy at most 1 MiB, so they run on gRPC's own threads and queue behind nothing;
// where a version must first be copied from a GPU, a thread does that. A slow reader holds its version's memory and
// nothing else. Thread-safe; the store must outlive the service, and the service the server.
#pragma once

#include "common/comm/device_session.h"
#include "common/comm/weight_store.h"
#include "manta/v1/weights.grpc.pb.h"

namespace manta::comm {

class WeightSourceService final : public v1::WeightSource::CallbackService {
 public:
  explicit WeightSourceService(WeightStore* store) : store_(store), sessions_(store) {}
  ~WeightSourceService() override;

  grpc::ServerUnaryReactor* Describe(grpc::CallbackServerContext* context, const v1::DescribeWeightsRequest* request,
                                     v1::WeightManifest* reply) override;
  grpc::ServerWriteReactor<v1::WeightChunk>* Fetch(grpc::CallbackServerContext* context,
                                                   const v1::FetchWeightsRequest* request) override;
  grpc::ServerUnaryReactor* Release(grpc::CallbackServerContext* context, const v1::ReleaseWeightsRequest* request,
                                    v1::ReleaseWeightsReply* reply) override;
  grpc::ServerBidiReactor<v1::DeviceRequest, v1::DeviceReply>* Connect(grpc::CallbackServerContext*) override {
    return sessions_.Start();
  }

 private:
  absl::Status DoDescribe(const v1::DescribeWeightsRequest& request, v1::WeightManifest* reply);

  WeightStore* const store_;
  DeviceSessions sessions_;
  absl::Mutex mutex_;
  int copying_ ABSL_GUARDED_BY(mutex_) = 0;  // threads that bring a version to the host
};

}  // namespace manta::comm
