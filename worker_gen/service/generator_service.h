// manta.v1.GeneratorService on top of the engine.
//
// Generate is handled on gRPC's own threads: it only parses the request and hands it to the engine. Everything that may
// wait (loading a model, pausing, fetching weights) goes through the `control` lane, one call after the other.
// Configure is taken once: another model is another process. Before it, the other calls are FAILED_PRECONDITION.
//
// Thread-safe. The service must outlive the server.
#pragma once

#include <functional>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/actor/lane.h"
#include "common/actor/load.h"
#include "common/rpc/channel_cache.h"
#include "common/rpc/stream_writer.h"
#include "manta/v1/generator.grpc.pb.h"
#include "worker_gen/service/loaded_generator.h"

namespace manta::gen {

class GeneratorService : public v1::GeneratorService::CallbackService {
 public:
  // `open_channel` reaches the holders of weights.
  GeneratorService(actor::Lane* control, ChannelOpener open_channel)
      : control_(*control), channels_(std::move(open_channel)) {}

  grpc::ServerUnaryReactor* Configure(grpc::CallbackServerContext* context,
                                      const v1::ConfigureGeneratorRequest* request,
                                      v1::ConfigureGeneratorReply* reply) override;
  grpc::ServerWriteReactor<v1::GenerateReply>* Generate(grpc::CallbackServerContext* context,
                                                        const v1::GenerateRequest* request) override;
  grpc::ServerUnaryReactor* Pause(grpc::CallbackServerContext* context, const v1::PauseRequest* request,
                                  v1::PauseReply* reply) override;
  grpc::ServerUnaryReactor* Resume(grpc::CallbackServerContext* context, const v1::ResumeRequest* request,
                                   v1::ResumeReply* reply) override;
  grpc::ServerUnaryReactor* UpdateWeights(grpc::CallbackServerContext* context, const v1::UpdateWeightsRequest* request,
                                          v1::UpdateWeightsReply* reply) override;
  grpc::ServerUnaryReactor* GetStats(grpc::CallbackServerContext* context, const v1::GetGeneratorStatsRequest* request,
                                     v1::GeneratorStats* reply) override;

  // Requests that are there, and tokens that have been computed. Does not block on a step.
  actor::Load load() const;

  // Ends every request as cancelled; does not block.
  void BeginStop();

 private:
  using Loaded = std::shared_ptr<LoadedGenerator>;
  absl::StatusOr<Loaded> loaded() const;  // FAILED_PRECONDITION before Configure
  absl::Status Submit(const v1::GenerateRequest& request,
                      const std::shared_ptr<rpc::StreamWriter<v1::GenerateReply>>& w);

  actor::Lane& control_;
  rpc::ChannelCache channels_;  // to the holders of the last weights
  mutable absl::Mutex mutex_;
  Loaded loaded_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace manta::gen
