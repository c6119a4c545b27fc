#include "worker_train/service.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <thread>

#include "absl/strings/str_cat.h"
#include "common/base/message_bytes.h"
#include "common/base/status.h"
#include "common/comm/cpu_collective.h"
#include "common/comm/hash64.h"
#include "common/cuda/load.h"
#include "common/kernels/parallel.h"
#include "common/rpc/status.h"
#include "worker_train/folder_probe.h"

namespace manta::train {
namespace {

// Of what makes two configurations the same trainer: not of where its ranks meet, nor of where it starts from.
std::string ConfigHash(v1::ConfigureTrainerRequest request) {
  request.clear_rendezvous();
  request.clear_resume_from();
  request.clear_checkpoints();
  const std::string bytes = DeterministicBytes(request);
  const uint64_t hash = comm::Hash64::Of(bytes.data(), bytes.size());
  return std::string(reinterpret_cast<const char*>(&hash), sizeof(hash));
}

}  // namespace

absl::Status TrainerServiceImpl::DoConfigure(const v1::ConfigureTrainerRequest& request,
                                             v1::ConfigureTrainerReply* reply) {
  if (engine_ != nullptr) return absl::FailedPreconditionError("this trainer is configured already");
  if (request.world_size() < 1 || request.rank() < 0 || request.rank() >= request.world_size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("rank ", request.rank(), " of ", request.world_size(), " makes no sense"));
  }
  if (request.has_checkpoints()) MANTA_RETURN_IF_ERROR(AnswerFolderProbe(request.checkpoints(), request.rank()));
  const int here = request.local_world_size() > 0 ? request.local_world_size() : request.world_size();
  const int threads = request.device().num_threads() > 0
                          ? request.device().num_threads()
                          : std::max<int>(1, static_cast<int>(std::thread::hardware_concurrency()) / here);
  at::set_num_threads(threads);
  kernels::SetThreads(threads);
  const cuda::Api* api = nullptr;
  if (request.device().kind() == v1::DEVICE_KIND_CUDA) {
    MANTA_ASSIGN_OR_RETURN(api, cuda::Load());
    MANTA_RETURN_IF_ERROR(api->set_device(request.device().index()));  // of the lane's one thread, for good
  }
  std::shared_ptr<comm::Collective> collective, device_collective;
  if (request.world_size() > 1) {
    comm::CpuCollectiveOptions options;
    options.rank = request.rank();
    options.size = request.world_size();
    options.rendezvous = request.rendezvous();
    options.nonce = options_.nonce;
    options.epoch = options_.epoch;
    MANTA_ASSIGN_OR_RETURN(collective, comm::CreateCpuCollective(options));
    absl::MutexLock lock(&mutex_);
    collective_ = collective;
    if (!abort_reason_.empty()) collective->Abort(abort_reason_);
  }
  if (collective != nullptr && api != nullptr) {
    MANTA_ASSIGN_OR_RETURN(device_collective, api->new_nccl_collective(collective, absl::Minutes(10)));
  }
  MANTA_ASSIGN_OR_RETURN(engine_, Engine::Create(request, collective, device_collective));
  engine_->OnWork([this] { ++work_done_; });
  engine_->Describe(reply);
  absl::MutexLock lock(&mutex_);
  state_.set_configured(true);
  state_.set_config_hash(ConfigHash(request));
  state_.set_step(engine_->step());
  return absl::OkStatus();
}

void TrainerServiceImpl::Abort(const std::string& reason) {
  absl::MutexLock lock(&mutex_);
  if (abort_reason_.empty()) abort_reason_ = reason;
  if (collective_ != nullptr) collective_->Abort(reason);
}

grpc::ServerUnaryReactor* TrainerServiceImpl::GetState(grpc::CallbackServerContext* context,
                                                       const v1::GetTrainerStateRequest*, v1::TrainerState* reply) {
  {
    absl::MutexLock lock(&mutex_);
    *reply = state_;
  }
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

grpc::ServerUnaryReactor* TrainerServiceImpl::OnLane(grpc::CallbackServerContext* context,
                                                     std::function<absl::Status()> call) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  const absl::Status posted = options_.lane->Post([this, reactor, call = std::move(call)] {
    absl::Status status;
    {
      const Turn turn(this);
      status = call();
    }
    reactor->Finish(rpc::ToGrpc(status));
  });
  if (!posted.ok()) reactor->Finish(rpc::ToGrpc(posted));
  return reactor;
}

grpc::ServerUnaryReactor* TrainerServiceImpl::Configure(grpc::CallbackServerContext* context,
                                                        const v1::ConfigureTrainerRequest* request,
                                                        v1::ConfigureTrainerReply* reply) {
  return OnLane(context, [this, request, reply] { return DoConfigure(*request, reply); });
}

grpc::ServerUnaryReactor* TrainerServiceImpl::OnEngine(grpc::CallbackServerContext* context,
                                                       std::function<absl::Status(Engine&)> call) {
  return OnLane(context, [this, call = std::move(call)]() -> absl::Status {
    if (engine_ == nullptr) return absl::FailedPreconditionError("this trainer is not configured yet");
    return call(*engine_);
  });
}

grpc::ServerUnaryReactor* TrainerServiceImpl::OnEngineOnce(grpc::CallbackServerContext* context,
                                                           const google::protobuf::Message* request,
                                                           google::protobuf::Message* reply,
                                                           std::function<absl::Status(Engine&)> call) {
  const actor::CallKey key = actor::CallKey::Of(*context);
  return OnEngine(context, [=, this, call = std::move(call)](Engine& engine) {
    const auto running = [this](const std::string& now) {
      absl::MutexLock lock(&mutex_);
      state_.set_running(now);
    };
    running(key.key);
    const absl::Status status = replies_.Run(key, *request, reply, [&] { return call(engine); });
    absl::MutexLock lock(&mutex_);
    state_.set_running("");
    if (!key.key.empty()) state_.set_ended_key(key.key);
    state_.set_step(engine.step());
    return status;
  });
}

grpc::ServerUnaryReactor* TrainerServiceImpl::Train(grpc::CallbackServerContext* context,
                                                    const v1::TrainRequest* request, v1::TrainReply* reply) {
  return OnEngineOnce(context, request, reply,
                      [=, this, key = actor::CallKey::Of(*context).key](Engine& engine) -> absl::Status {
                        MANTA_RETURN_IF_ERROR(engine.Train(*request, reply));
                        options_.on_step(engine.step());
                        absl::MutexLock lock(&mutex_);
                        state_.set_step(engine.step());
                        state_.set_trained_key(key);
                        state_.set_trained_note(request->note());
                        return absl::OkStatus();
                      });
}

grpc::ServerUnaryReactor* TrainerServiceImpl::Evaluate(grpc::CallbackServerContext* context,
                                                       const v1::TrainRequest* request, v1::TrainReply* reply) {
  return OnEngine(context, [=](Engine& engine) { return engine.Evaluate(*request, reply); });
}

grpc::ServerUnaryReactor* TrainerServiceImpl::ComputeLogprobs(grpc::CallbackServerContext* context,
                                                              const v1::LogprobRequest* request,
                                                              v1::LogprobReply* reply) {
  return OnEngine(context, [=](Engine& engine) { return engine.ComputeLogprobs(*request, reply); });
}

grpc::ServerUnaryReactor* TrainerServiceImpl::PublishWeights(grpc::CallbackServerContext* context,
                                                             const v1::PublishWeightsRequest* request,
                                                             v1::PublishWeightsReply* reply) {
  return OnEngineOnce(context, request, reply, [=, this](Engine& engine) -> absl::Status {
    MANTA_RETURN_IF_ERROR(engine.Publish(request->version(), request->num_readers(), *options_.store, reply));
    absl::MutexLock lock(&mutex_);
    state_.set_published_version(request->version());
    return absl::OkStatus();
  });
}

grpc::ServerUnaryReactor* TrainerServiceImpl::SaveCheckpoint(grpc::CallbackServerContext* context,
                                                             const v1::SaveCheckpointRequest* request,
                                                             v1::SaveCheckpointReply* reply) {
  return OnEngineOnce(context, request, reply, [=](Engine& engine) { return engine.Save(*request, reply); });
}

}  // namespace manta::train
