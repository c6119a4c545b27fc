#include "controller/algorithms/trainer_group.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/rpc/call.h"

namespace manta::controller {
namespace {

// One rank's call. Its failure cancels the others' through `source`, and stays the group's answer.
template <typename Stub, typename Method, typename Request, typename Reply>
Task<absl::StatusOr<Reply>> CallRank(EventLoop* loop, Stub* stub, Method method, Request request,
                                     rpc::CallOptions options, CancelSource* source, absl::Status* first_error,
                                     std::string what) {
  absl::StatusOr<Reply> reply = co_await rpc::Call(*loop, stub->async(), method, std::move(request), std::move(options));
  if (!reply.ok() && first_error->ok()) {
    *first_error = Annotate(reply.status(), what);
    source->Cancel(absl::CancelledError("another rank of the trainer failed"));
  }
  co_return reply;
}

}  // namespace

TrainerGroup::TrainerGroup(EventLoop& loop, std::vector<std::shared_ptr<grpc::Channel>> channels,
                           std::vector<std::string> addresses, std::vector<std::string> names, CancelToken cancel,
                           Deadlines deadlines)
    : loop_(loop), addresses_(std::move(addresses)), names_(std::move(names)), cancel_(std::move(cancel)), deadlines_(deadlines) {
  for (auto& channel : channels) stubs_.push_back(v1::TrainerService::NewStub(channel));
}

template <typename Request, typename Reply>
Task<absl::StatusOr<std::vector<Reply>>> TrainerGroup::CallAll(Method<Request, Reply> method,
                                                               std::vector<Request> requests, rpc::CallOptions options,
                                                               const char* what) {
  CancelSource source;
  const auto registration =
      cancel_.OnCancel([&source, token = cancel_] { source.Cancel(token.status()); });
  if (cancel_.cancelled()) co_return cancel_.status();
  absl::Status first_error;
  std::vector<Task<absl::StatusOr<Reply>>> calls;
  for (size_t rank = 0; rank < stubs_.size(); ++rank) {
    calls.push_back(CallRank<Stub, Method<Request, Reply>, Request, Reply>(
        &loop_, stubs_[rank].get(), method, std::move(requests[rank]),
        rpc::CallOptions{.deadline = options.deadline,
                         .cancel = source.token(),
                         .key = options.key,
                         .kept_only = options.kept_only},
        &source, &first_error,
        absl::StrCat(names_[rank], ": ", what)));
  }
  std::vector<absl::StatusOr<Reply>> replies = co_await WhenAll(std::move(calls));
  if (cancel_.cancelled()) co_return cancel_.status();
  if (!first_error.ok()) co_return first_error;
  std::vector<Reply> values;
  for (auto& reply : replies) values.push_back(std::move(*reply));
  co_return values;
}

Task<absl::StatusOr<v1::ConfigureTrainerReply>> TrainerGroup::Configure(v1::ConfigureTrainerRequest request) {
  std::vector<v1::ConfigureTrainerRequest> requests(stubs_.size(), request);
  for (int rank = 0; rank < size(); ++rank) {
    requests[rank].set_rank(rank);
    requests[rank].set_world_size(size());
  }
  rpc::CallOptions options{.deadline = deadlines_.configure};
  auto replies = co_await CallAll<v1::ConfigureTrainerRequest, v1::ConfigureTrainerReply>(
      &Stub::async::Configure, std::move(requests), std::move(options), "configure");
  if (!replies.ok()) co_return replies.status();
  co_return std::move((*replies)[0]);
}

template <typename Reply>
Task<absl::StatusOr<v1::TrainReply>> TrainerGroup::TrainOrEvaluate(Method<v1::TrainRequest, Reply> method,
                                                                   v1::TrainRequest request,
                                                                   std::span<const Sequence> sequences, ShardPlan plan,
                                                                   std::string key, const char* what) {
  const GlobalCounts counts = CountValid(sequences);
  request.set_global_valid_toks(counts.valid_tokens);
  request.set_global_valid_seqs(counts.valid_sequences);
  std::vector<v1::TrainRequest> requests(stubs_.size(), request);
  for (int rank = 0; rank < size(); ++rank) *requests[rank].mutable_batch() = PackForRank(sequences, plan, rank);
  rpc::CallOptions options{.deadline = deadlines_.train, .key = std::move(key)};
  auto replies =
      co_await CallAll<v1::TrainRequest, v1::TrainReply>(method, std::move(requests), std::move(options), what);
  if (!replies.ok()) co_return replies.status();
  co_return std::move((*replies)[0]);
}

Task<absl::StatusOr<v1::TrainReply>> TrainerGroup::Train(v1::TrainRequest request, std::span<const Sequence> sequences,
                                                         ShardPlan plan, std::string key) {
  return TrainOrEvaluate<v1::TrainReply>(&Stub::async::Train, std::move(request), sequences, std::move(plan),
                                         std::move(key), "train");
}

Task<absl::StatusOr<v1::TrainReply>> TrainerGroup::Trained(std::string key) {
  rpc::CallOptions options{.deadline = deadlines_.state, .key = std::move(key), .kept_only = true};
  std::vector<v1::TrainRequest> requests(stubs_.size());
  auto replies = co_await CallAll<v1::TrainRequest, v1::TrainReply>(&Stub::async::Train, std::move(requests),
                                                                    std::move(options), "ask what training gave");
  if (!replies.ok()) co_return replies.status();
  co_return std::move((*replies)[0]);
}

Task<absl::StatusOr<v1::TrainReply>> TrainerGroup::Evaluate(v1::TrainRequest request,
                                                            std::span<const Sequence> sequences, ShardPlan plan) {
  return TrainOrEvaluate<v1::TrainReply>(&Stub::async::Evaluate, std::move(request), sequences, std::move(plan),
                                         /*key=*/"", "evaluate");
}

Task<absl::StatusOr<std::vector<std::vector<float>>>> TrainerGroup::ComputeLogprobs(v1::LogprobRequest request,
                                                                                    std::span<const Sequence> sequences,
                                                                                    ShardPlan plan) {
  std::vector<v1::LogprobRequest> requests(stubs_.size(), request);
  for (int rank = 0; rank < size(); ++rank) *requests[rank].mutable_batch() = PackForRank(sequences, plan, rank);
  rpc::CallOptions options{.deadline = deadlines_.train};
  auto replies = co_await CallAll<v1::LogprobRequest, v1::LogprobReply>(
      &Stub::async::ComputeLogprobs, std::move(requests), std::move(options), "log-probabilities");
  if (!replies.ok()) co_return replies.status();
  std::vector<std::vector<float>> rows(sequences.size());
  for (int rank = 0; rank < size(); ++rank) {
    MANTA_CO_RETURN_IF_ERROR(UnpackFromRank((*replies)[rank].logprobs(), plan, rank, sequences, rows));
  }
  co_return rows;
}

Task<absl::StatusOr<v1::WeightSources>> TrainerGroup::Publish(uint64_t version, int num_readers, std::string key) {
  v1::PublishWeightsRequest request;
  request.set_version(version);
  request.set_num_readers(num_readers);
  std::vector<v1::PublishWeightsRequest> requests(stubs_.size(), request);
  rpc::CallOptions options{.deadline = deadlines_.configure, .key = std::move(key)};
  auto replies = co_await CallAll<v1::PublishWeightsRequest, v1::PublishWeightsReply>(
      &Stub::async::PublishWeights, std::move(requests), std::move(options), "publish weights");
  if (!replies.ok()) co_return replies.status();
  v1::WeightSources sources;
  sources.set_version(version);
  for (const auto& address : addresses_) sources.add_addresses(address);
  co_return sources;
}

Task<absl::Status> TrainerGroup::Save(std::string directory, bool save_optimizer, std::string key) {
  v1::SaveCheckpointRequest request;
  request.set_directory(directory);
  request.set_save_optimizer(save_optimizer);
  std::vector<v1::SaveCheckpointRequest> requests(stubs_.size(), request);
  rpc::CallOptions options{.deadline = deadlines_.save, .key = std::move(key)};
  auto replies = co_await CallAll<v1::SaveCheckpointRequest, v1::SaveCheckpointReply>(
      &Stub::async::SaveCheckpoint, std::move(requests), std::move(options), "save checkpoint");
  co_return replies.status();
}

Task<absl::StatusOr<std::vector<v1::TrainerState>>> TrainerGroup::States() {
  std::vector<v1::GetTrainerStateRequest> requests(stubs_.size());
  rpc::CallOptions options{.deadline = deadlines_.state};
  return CallAll<v1::GetTrainerStateRequest, v1::TrainerState>(&Stub::async::GetState, std::move(requests),
                                                               std::move(options), "ask for its state");
}

}  // namespace manta::controller
