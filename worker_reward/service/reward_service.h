// RewardService: scores batches on a lane's threads. Several threads share the samples of one call, so that a batch
// takes as long as its slowest sample rather than the sum. Thread-safe, as gRPC needs it to be; the lane must outlive
// it.
#pragma once

#include "common/actor/lane.h"
#include "manta/v1/reward.grpc.pb.h"

namespace manta::reward {

class RewardService : public v1::RewardService::CallbackService {
 public:
  // `num_threads`: how many of the lane's threads one call may use.
  RewardService(actor::Lane* lane, int num_threads) : lane_(lane), num_threads_(num_threads) {}

  grpc::ServerUnaryReactor* Score(grpc::CallbackServerContext* context, const v1::ScoreRequest* request,
                                  v1::ScoreReply* reply) override;
  grpc::ServerUnaryReactor* ListVerifiers(grpc::CallbackServerContext* context, const v1::ListVerifiersRequest* request,
                                          v1::ListVerifiersReply* reply) override;

 private:
  actor::Lane* lane_;
  int num_threads_;
};

}  // namespace manta::reward
