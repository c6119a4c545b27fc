// How an engine comes into being, and what it gives away: weights and checkpoints.
#include <numeric>

#include "absl/strings/str_cat.h"
#include "common/base/file.h"
#include "common/base/log.h"
#include "common/base/status.h"
#include "common/cuda/load.h"
#include "common/model/catch_aten.h"
#include "common/model/config_overrides.h"
#include "worker_train/engine/engine.h"

namespace manta::train {
namespace {

namespace fs = std::filesystem;

absl::StatusOr<model::ModelConfig> ReadConfig(const v1::ConfigureTrainerRequest& request) {
  const std::string& overrides = request.hf_config_overrides_json();
  if (!request.model_path().empty()) return model::LoadModelConfigWith(request.model_path(), overrides);
  if (request.random_init() && !request.init_config_json().empty()) {
    return model::ParseModelConfigWith(request.init_config_json(), overrides, "init_config_json");
  }
  return UserError("policy.model_name is missing: a model's folder, or policy.init with a config, is needed");
}

absl::StatusOr<at::ScalarType> ComputeType(const v1::ConfigureTrainerRequest& request) {
  switch (request.dtype()) {
    case v1::DTYPE_UNSPECIFIED:
    case v1::DTYPE_F32:
      return at::kFloat;
    case v1::DTYPE_BF16:
      return at::kBFloat16;
    default:
      return absl::UnimplementedError(
          "policy.precision: training runs in float32 or bfloat16 (float16 would need its "
          "losses scaled)");
  }
}

absl::StatusOr<at::Device> ComputeDevice(const v1::Device& device) {
  if (device.kind() != v1::DEVICE_KIND_CUDA) return at::Device(at::kCPU);
  MANTA_RETURN_IF_ERROR(cuda::Load().status());
  return at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(device.index()));
}

v1::DType WireType(at::ScalarType type) {
  return type == at::kBFloat16 ? v1::DTYPE_BF16 : v1::DTYPE_F32;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Engine>> Engine::Create(const v1::ConfigureTrainerRequest& request,
                                                       std::shared_ptr<comm::Collective> collective,
                                                       std::shared_ptr<comm::Collective> device_collective) {
  std::unique_ptr<Engine> engine(new Engine());
  engine->config_ = request;
  engine->collective_ = std::move(collective);
  engine->device_collective_ = device_collective != nullptr ? std::move(device_collective) : engine->collective_;
  const v1::OptimizerConfig& optimizer = request.optimizer();
  if (optimizer.name() != "adamw") {
    return UserError(absl::StrCat("policy.optimizer.name is '", optimizer.name(), "'; known is adamw"));
  }
  if (!(optimizer.beta1() >= 0 && optimizer.beta1() < 1 && optimizer.beta2() >= 0 && optimizer.beta2() < 1)) {
    return UserError("policy.optimizer.kwargs.betas must lie in [0, 1)");
  }
  if (!(optimizer.lr() >= 0 && optimizer.eps() >= 0 && optimizer.weight_decay() >= 0)) {
    return UserError("policy.optimizer.kwargs: lr, eps and weight_decay must not be negative");
  }
  MANTA_ASSIGN_OR_RETURN(engine->schedule_, LrSchedule::Create(optimizer.lr(), request.schedule()));
  MANTA_RETURN_IF_ERROR(engine->LoadModel());
  MANTA_ASSIGN_OR_RETURN(engine->optimizer_,
                         ShardedAdamW::Create(&engine->parameters_, engine->device_collective_.get()));
  if (!request.resume_from().empty()) MANTA_RETURN_IF_ERROR(engine->RestoreState());
  return engine;
}

absl::Status Engine::LoadModel() {
  MANTA_ASSIGN_OR_RETURN(const model::ModelConfig config, ReadConfig(config_));
  MANTA_ASSIGN_OR_RETURN(const at::ScalarType dtype, ComputeType(config_));
  MANTA_ASSIGN_OR_RETURN(const at::Device device, ComputeDevice(config_.device()));
  const auto initial = [&]() -> absl::StatusOr<model::Parameters> {
    if (config_.random_init()) return model::Parameters::Random(config, config_.seed(), dtype, device);
    return model::Parameters::Load(config, config_.model_path(), dtype, device);
  };
  if (config_.keep_reference()) {
    MANTA_ASSIGN_OR_RETURN(reference_, initial());
  }
  if (!config_.resume_from().empty()) {
    const fs::path weights = fs::path(config_.resume_from()) / "weights";
    MANTA_ASSIGN_OR_RETURN(parameters_, model::Parameters::Load(config, weights, dtype, device));
  } else if (reference_) {
    MANTA_ASSIGN_OR_RETURN(parameters_, model::Parameters::Create(config, dtype, device));
    MANTA_RETURN_IF_ERROR(model::CatchAten("copying the weights", [&] {
      parameters_.flat_values().copy_(reference_->flat_values());
      return absl::OkStatus();
    }));
    parameters_.ValuesChanged();
  } else {
    MANTA_ASSIGN_OR_RETURN(parameters_, initial());
  }
  parameters_.EnableGradients();
  return absl::OkStatus();
}

absl::Status Engine::RestoreState() {
  MANTA_ASSIGN_OR_RETURN(state_, LoadTrainerState(config_.resume_from()));
  if (!state_.has_optimizer) {
    return UserError(absl::StrCat(config_.resume_from(),
                                  " was saved without its optimiser's state: training cannot go on "
                                  "from it (its weights can start a new run)"));
  }
  for (const char* kind : ShardedAdamW::kKinds) {
    MANTA_ASSIGN_OR_RETURN(const at::Tensor flat, LoadOptimizerKind(parameters_, config_.resume_from(), kind));
    optimizer_->Restore(kind, flat);
  }
  return absl::OkStatus();
}

void Engine::Describe(v1::ConfigureTrainerReply* reply) const {
  uint64_t parameters = 0, embedding = 0;
  for (const model::ParameterSpec& spec : parameters_.table()) {
    parameters += static_cast<uint64_t>(spec.numel);
    if (spec.name == "model.embed_tokens.weight") embedding = static_cast<uint64_t>(spec.numel);
  }
  reply->set_num_parameters(parameters);
  reply->set_step(state_.step);
  // A look-up in the embedding costs nothing; where it is tied it is multiplied with as the output matrix.
  const bool tied = parameters_.config().tie_word_embeddings;
  reply->set_flops_per_token(6.0 * static_cast<double>(parameters - (tied ? 0 : embedding)));
}

const std::shared_ptr<comm::DeviceTransport>& Engine::Transport() {
  if (transport_.has_value()) return *transport_;
  transport_.emplace(nullptr);
  if (!parameters_.device().is_cuda()) return *transport_;
  absl::StatusOr<std::shared_ptr<comm::DeviceTransport>> transport =
      cuda::Loaded()->new_device_transport(parameters_.device().index());
  if (transport.ok()) {
    transport_ = *std::move(transport);
  } else {
    LogWarning(absl::StrCat("weights go through the host: ", transport.status().message()));
  }
  return *transport_;
}

absl::Status Engine::Publish(uint64_t version, int num_readers, comm::WeightStore& store,
                             v1::PublishWeightsReply* reply) {
  std::vector<comm::LocalSlice> slices;
  uint64_t bytes = 0;
  parameters_.ForEach([&](const model::ParameterSpec& spec, const at::Tensor& value) {
    comm::LocalSlice slice;
    slice.spec.name = spec.name;
    slice.spec.dtype = WireType(parameters_.dtype());
    slice.spec.shape = spec.shape;
    slice.data = value.const_data_ptr();
    bytes += slice.spec.bytes();
    slices.push_back(std::move(slice));
  });
  reply->set_bytes(bytes);
  const cuda::Api* const api = parameters_.device().is_cuda() ? cuda::Loaded() : nullptr;
  if (Transport() == nullptr) return store.Publish(version, slices, api != nullptr ? api->copy : nullptr);
  MANTA_RETURN_IF_ERROR(api->synchronize());  // what the optimiser has queued is done when others begin to read
  // Copies are made by other threads too, whose current device may be another.
  const int device = parameters_.device().index();
  const auto copy = [api, device](void* to, const void* from, size_t bytes_to_copy) -> absl::Status {
    MANTA_RETURN_IF_ERROR(api->set_device(device));
    return api->copy(to, from, bytes_to_copy);
  };
  MANTA_RETURN_IF_ERROR(store.PublishInPlace(version, slices, Transport(), copy, num_readers));
  lender_ = &store;
  return absl::OkStatus();
}

absl::Status Engine::Save(const v1::SaveCheckpointRequest& request, v1::SaveCheckpointReply* reply) {
  const fs::path policy = request.directory();
  const bool writes = config_.rank() == 0;
  absl::Status status;  // the first error of a write: the collectives go on, the other ranks wait in them
  const auto note = [&](const absl::Status& result) {
    if (status.ok()) status = result;
  };
  if (writes) note(SaveWeights(parameters_, policy, config_.model_path(), config_.tokenizer_path()));
  on_work_();
  TrainerState state = state_;
  state.has_optimizer = request.save_optimizer();
  if (request.save_optimizer()) {
    for (const char* kind : ShardedAdamW::kKinds) {
      MANTA_ASSIGN_OR_RETURN(const at::Tensor flat, optimizer_->Gather(kind));
      if (writes && status.ok()) note(SaveOptimizerKind(parameters_, policy, kind, flat));
      on_work_();
    }
  }
  if (writes && status.ok()) note(SaveTrainerState(policy, state));
  MANTA_RETURN_IF_ERROR(status);
  if (writes) reply->set_bytes(FolderBytes(policy));
  return absl::OkStatus();
}

}  // namespace manta::train
