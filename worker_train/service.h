// TrainerService over one Engine: what a manta-train process answers.
//
// All calls run one after the other on one lane; ActorService and WeightSource answer beside it. Configure joins the
// group's collective and builds the engine, once; until then other calls get FAILED_PRECONDITION. When a peer is lost,
// the collective is aborted, so that a call that waits in it fails within a second. Handlers are thread-safe.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/actor/keyed_replies.h"
#include "common/actor/lane.h"
#include "common/comm/weight_store.h"
#include "manta/v1/trainer.grpc.pb.h"
#include "worker_train/engine/engine.h"

namespace manta::train {

class TrainerServiceImpl final : public v1::TrainerService::CallbackService {
 public:
  struct Options {
    actor::Lane* lane;         // of one thread; outlives the service's calls
    comm::WeightStore* store;  // outlives the service
    std::string nonce;         // the job's secret: what a group's ranks show each other
    uint64_t epoch = 0;
    std::function<void(int64_t step)> on_step = [](int64_t) {};  // after each optimiser step
  };
  explicit TrainerServiceImpl(Options options) : options_(std::move(options)) {}

  // Answers beside the lane, so that a call that runs does not hold it up.
  grpc::ServerUnaryReactor* GetState(grpc::CallbackServerContext*, const v1::GetTrainerStateRequest*,
                                     v1::TrainerState*) override;
  grpc::ServerUnaryReactor* Configure(grpc::CallbackServerContext*, const v1::ConfigureTrainerRequest*,
                                      v1::ConfigureTrainerReply*) override;
  grpc::ServerUnaryReactor* Train(grpc::CallbackServerContext*, const v1::TrainRequest*, v1::TrainReply*) override;
  grpc::ServerUnaryReactor* Evaluate(grpc::CallbackServerContext*, const v1::TrainRequest*, v1::TrainReply*) override;
  grpc::ServerUnaryReactor* ComputeLogprobs(grpc::CallbackServerContext*, const v1::LogprobRequest*,
                                            v1::LogprobReply*) override;
  grpc::ServerUnaryReactor* PublishWeights(grpc::CallbackServerContext*, const v1::PublishWeightsRequest*,
                                           v1::PublishWeightsReply*) override;
  grpc::ServerUnaryReactor* SaveCheckpoint(grpc::CallbackServerContext*, const v1::SaveCheckpointRequest*,
                                           v1::SaveCheckpointReply*) override;

  // Microbatches and parts of checkpoints so far: grows while a call comes on. Thread-safe.
  uint64_t work_done() const { return work_done_; }

  // Makes what waits for other ranks fail with `reason`, now and from here on. Does not block.
  void Abort(const std::string& reason);

 private:
  // A call's turn on the lane, which GetState counts.
  class Turn {
   public:
    explicit Turn(TrainerServiceImpl* service) : service_(service) {
      absl::MutexLock lock(&service_->mutex_);
      service_->state_.set_begun(service_->state_.begun() + 1);
    }
    ~Turn() {
      absl::MutexLock lock(&service_->mutex_);
      service_->state_.set_ended(service_->state_.ended() + 1);
    }

   private:
    TrainerServiceImpl* const service_;
  };

  absl::Status DoConfigure(const v1::ConfigureTrainerRequest& request, v1::ConfigureTrainerReply* reply);
  // A call that has come is made, whether its caller is still there or not: the other ranks may be in it already, and
  // would wait for this one.
  grpc::ServerUnaryReactor* OnLane(grpc::CallbackServerContext* context, std::function<absl::Status()> call);
  // Runs `call` on the lane with the engine; one that changes it, under the key that the call carries.
  grpc::ServerUnaryReactor* OnEngineOnce(grpc::CallbackServerContext* context, const google::protobuf::Message* request,
                                         google::protobuf::Message* reply, std::function<absl::Status(Engine&)> call);
  grpc::ServerUnaryReactor* OnEngine(grpc::CallbackServerContext* context, std::function<absl::Status(Engine&)> call);

  const Options options_;
  absl::Mutex mutex_;
  std::shared_ptr<comm::Collective> collective_ ABSL_GUARDED_BY(mutex_);  // the engine's, to abort it
  std::string abort_reason_ ABSL_GUARDED_BY(mutex_);
  v1::TrainerState state_ ABSL_GUARDED_BY(mutex_);  // what GetState says
  std::atomic<uint64_t> work_done_ = 0;
  std::unique_ptr<Engine> engine_;  // the lane's
  actor::KeyedReplies replies_;     // the lane's
};

}  // namespace manta::train
