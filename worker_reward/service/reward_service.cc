#include "worker_reward/service/reward_service.h"

#include <algorithm>
#include <memory>

#include "common/rpc/status.h"
#include "worker_reward/service/batch.h"

namespace manta::reward {

grpc::ServerUnaryReactor* RewardService::Score(grpc::CallbackServerContext* context, const v1::ScoreRequest* request,
                                               v1::ScoreReply* reply) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  absl::StatusOr<std::shared_ptr<Batch>> batch = Batch::Create(*request, reply);
  if (!batch.ok() || (*batch)->size() == 0) {
    reactor->Finish(rpc::ToGrpc(batch.status()));
    return reactor;
  }
  const auto work = [context, reactor, batch = *batch] {
    if (batch->Run([context] { return context->IsCancelled(); })) reactor->Finish(grpc::Status::OK);
  };
  if (absl::Status posted = lane_->Post(work); !posted.ok()) {
    reactor->Finish(rpc::ToGrpc(posted));
    return reactor;
  }
  // Help from other threads; where the queue is full the first does it all.
  const int helpers = std::min(num_threads_, (*batch)->size()) - 1;
  for (int i = 0; i < helpers; ++i) {
    if (!lane_->Post(work).ok()) break;
  }
  return reactor;
}

grpc::ServerUnaryReactor* RewardService::ListVerifiers(grpc::CallbackServerContext* context,
                                                       const v1::ListVerifiersRequest*, v1::ListVerifiersReply* reply) {
  for (std::string& name : VerifierNames()) reply->add_names(std::move(name));
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

}  // namespace manta::reward
