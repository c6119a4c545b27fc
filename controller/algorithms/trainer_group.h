// The ranks of a trainer, as one: every call goes to all of them at once, with each rank's share of the batch.
//
// Runs on the controller's loop. The first rank to fail decides the answer, and the calls to the others are cancelled:
// they could only wait in a collective for the one that failed. Replies of ranks are equal by construction (metrics are
// reduced over the group), so rank 0's is returned. The group owns its stubs; channels are shared.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/base/event_loop.h"
#include "common/base/task.h"
#include "common/rpc/call.h"
#include "controller/algorithms/batch.h"
#include "grpcpp/channel.h"
#include "manta/v1/trainer.grpc.pb.h"
#include "manta/v1/weights.grpc.pb.h"

namespace manta::controller {

class TrainerGroup {
 public:
  struct Deadlines {
    absl::Duration configure = absl::Minutes(20);
    absl::Duration train = absl::Minutes(60);
    absl::Duration save = absl::Minutes(60);
    absl::Duration state = absl::Seconds(20);
  };
  // `addresses[r]` is where rank r's channel leads: weight sources are named by it. `names[r]` is how errors call it.
  TrainerGroup(EventLoop& loop, std::vector<std::shared_ptr<grpc::Channel>> channels, std::vector<std::string> addresses,
               std::vector<std::string> names, CancelToken cancel, Deadlines deadlines);

  int size() const { return static_cast<int>(stubs_.size()); }
  const std::vector<std::string>& names() const { return names_; }

  // `request` without rank and world size.
  Task<absl::StatusOr<v1::ConfigureTrainerReply>> Configure(v1::ConfigureTrainerRequest request);
  // `request` without batch and counts. The sequences must stay until the task is done. Calls that change the ranks carry
  // a key: one that a rank has done already is not done again, and is answered as it was then (keyed_replies.h).
  Task<absl::StatusOr<v1::TrainReply>> Train(v1::TrainRequest request, std::span<const Sequence> sequences,
                                             ShardPlan plan, std::string key);
  // What Train under this key was answered with. NOT_FOUND where a rank does not keep it.
  Task<absl::StatusOr<v1::TrainReply>> Trained(std::string key);
  Task<absl::StatusOr<v1::TrainReply>> Evaluate(v1::TrainRequest request, std::span<const Sequence> sequences,
                                                ShardPlan plan);
  // Row i: [length of sequence i].
  Task<absl::StatusOr<std::vector<std::vector<float>>>> ComputeLogprobs(v1::LogprobRequest request,
                                                                        std::span<const Sequence> sequences,
                                                                        ShardPlan plan);
  // Where the published version can be had.
  Task<absl::StatusOr<v1::WeightSources>> Publish(uint64_t version, int num_readers, std::string key);
  // Changes nothing but the folder, which a controller that was started anew empties first: the key only names the call,
  // and is to be another each time.
  Task<absl::Status> Save(std::string directory, bool save_optimizer, std::string key);
  // Of every rank, in their order; answered whatever they work on.
  Task<absl::StatusOr<std::vector<v1::TrainerState>>> States();

 private:
  using Stub = v1::TrainerService::Stub;
  template <typename Request, typename Reply>
  using Method = void (Stub::async::*)(grpc::ClientContext*, const Request*, Reply*, std::function<void(grpc::Status)>);

  template <typename Request, typename Reply>
  Task<absl::StatusOr<std::vector<Reply>>> CallAll(Method<Request, Reply> method, std::vector<Request> requests,
                                                   rpc::CallOptions options, const char* what);
  template <typename Reply>
  Task<absl::StatusOr<v1::TrainReply>> TrainOrEvaluate(Method<v1::TrainRequest, Reply> method, v1::TrainRequest request,
                                                       std::span<const Sequence> sequences, ShardPlan plan,
                                                       std::string key, const char* what);

  EventLoop& loop_;
  std::vector<std::unique_ptr<Stub>> stubs_;
  std::vector<std::string> addresses_, names_;
  CancelToken cancel_;
  Deadlines deadlines_;
};

}  // namespace manta::controller
