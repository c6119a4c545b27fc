#include "worker_gen/service/loaded_generator.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <filesystem>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/log.h"
#include "common/base/status.h"
#include "common/cuda/load.h"
#include "common/kernels/parallel.h"
#include "common/model/catch_aten.h"
#include "common/model/config_overrides.h"
#include "common/model/generation_config.h"
#include "common/model/parameters.h"
#include "common/tokenizer/stream_decoder.h"
#include "worker_gen/runner/memory.h"
#include "worker_gen/runner/model_runner.h"

namespace manta::gen {
namespace {

class DecodedText : public TextStream {
 public:
  explicit DecodedText(std::shared_ptr<const tokenizer::Tokenizer> tokenizer)
      : decoder_(std::move(tokenizer), /*skip_special_tokens=*/true) {}
  std::string Append(int32_t token) override { return decoder_.Push(token); }

 private:
  tokenizer::StreamDecoder decoder_;
};

// `value` where it is set and in range, `fallback` where it is 0.
absl::StatusOr<int32_t> InRange(absl::string_view field, int32_t value, int32_t fallback, int32_t most) {
  if (value == 0) return fallback;
  if (value < 1 || value > most) {
    return absl::InvalidArgumentError(
        absl::StrCat(field, " is ", value, "; it must be between 1 and ", most, ", or 0 for ", fallback));
  }
  return value;
}

// Where and in what type the model runs.
struct Placement {
  at::Device device = at::kCPU;
  at::ScalarType dtype = at::kFloat;
};

absl::Status WrongDType(absl::string_view what_is_there, v1::DType asked) {
  return absl::UnimplementedError(absl::StrCat("vllm_cfg.precision (or policy.precision, which it follows): ",
                                               what_is_there, ", and was asked for ", v1::DType_Name(asked)));
}

absl::StatusOr<Placement> PlaceOnGpu(const v1::ConfigureGeneratorRequest& request) {
  if (request.dtype() != v1::DTYPE_F32 && request.dtype() != v1::DTYPE_BF16 &&
      request.dtype() != v1::DTYPE_UNSPECIFIED) {
    return WrongDType("on a GPU the generator computes in float32 or bfloat16", request.dtype());
  }
  MANTA_ASSIGN_OR_RETURN(const cuda::Api* api, cuda::Load());
  MANTA_RETURN_IF_ERROR(api->set_device(request.device().index()));
  return Placement{at::Device(at::kCUDA, static_cast<at::DeviceIndex>(request.device().index())),
                   request.dtype() == v1::DTYPE_BF16 ? at::kBFloat16 : at::kFloat};
}

absl::StatusOr<int64_t> AvailableBytes(const at::Device& device) {
  if (device.is_cpu()) return AvailableHostBytes();
  MANTA_ASSIGN_OR_RETURN(const cuda::DeviceInfo info, cuda::Loaded()->device_info(device.index()));
  return static_cast<int64_t>(info.free_bytes);
}

absl::StatusOr<Placement> ChoosePlacement(const v1::ConfigureGeneratorRequest& request) {
  if (request.device().kind() == v1::DEVICE_KIND_CUDA) return PlaceOnGpu(request);
  if (request.dtype() != v1::DTYPE_F32 && request.dtype() != v1::DTYPE_UNSPECIFIED) {
    return WrongDType("on the CPU the generator computes in float32", request.dtype());
  }
  if (request.device().num_threads() < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("device.num_threads is ", request.device().num_threads(), "; it must be at least 0"));
  }
  return Placement();
}

std::unique_ptr<comm::WeightClient> MakeClient(const at::Device& device, const ChannelOpener& open_channel) {
  comm::WeightClientOptions options;
  options.open_channel = open_channel;
  options.log = [](bool warning, const std::string& message) { warning ? LogWarning(message) : LogInfo(message); };
  if (device.is_cuda()) {
    absl::StatusOr<std::shared_ptr<comm::DeviceTransport>> transport =
        cuda::Loaded()->new_device_transport(device.index());
    if (transport.ok()) {
      options.transport = *std::move(transport);
    } else {
      options.log(true, absl::StrCat("weights come through the host: ", transport.status().message()));
    }
  }
  return std::make_unique<comm::WeightClient>(std::move(options));
}

}  // namespace

absl::StatusOr<std::shared_ptr<LoadedGenerator>> LoadedGenerator::Load(const v1::ConfigureGeneratorRequest& request) {
  MANTA_ASSIGN_OR_RETURN(const Placement placement, ChoosePlacement(request));
  if (request.model_path().empty()) return absl::InvalidArgumentError("model_path is empty");
  const std::filesystem::path folder = request.model_path();
  const int threads = request.device().num_threads();
  kernels::SetThreads(threads > 0 ? threads : static_cast<int>(std::thread::hardware_concurrency()));
  at::set_num_threads(1);  // what is left to ATen is not worth waking its own threads for

  MANTA_ASSIGN_OR_RETURN(const model::ModelConfig config,
                         model::LoadModelConfigWith(folder, request.hf_config_overrides_json()));
  EngineOptions options;
  options.vocab_size = static_cast<int32_t>(config.vocab_size);
  options.prefix_cache = request.prefix_cache();
  const int32_t context = static_cast<int32_t>(std::min<int64_t>(config.max_position_embeddings, 1 << 30));
  MANTA_ASSIGN_OR_RETURN(options.max_model_len, InRange("max_model_len", request.max_model_len(), context, context));
  MANTA_ASSIGN_OR_RETURN(options.limits.block_size, InRange("block_size", request.block_size(), 16, 1024));
  MANTA_ASSIGN_OR_RETURN(options.limits.max_num_seqs, InRange("max_num_seqs", request.max_num_seqs(), 256, 1 << 16));
  MANTA_ASSIGN_OR_RETURN(options.limits.max_batched_tokens,
                         InRange("max_batched_tokens", request.max_batched_tokens(), 2048, 1 << 20));
  MANTA_ASSIGN_OR_RETURN(options.max_queued, InRange("max_queued", request.max_queued(), 8192, 1 << 24));
  MANTA_ASSIGN_OR_RETURN(options.eos_ids, model::ReadEosIds(folder, config.eos_token_ids));

  MANTA_ASSIGN_OR_RETURN(model::Parameters parameters,
                         request.dummy_weights()
                             ? model::Parameters::Random(config, /*seed=*/0, placement.dtype, placement.device)
                             : model::Parameters::Load(config, folder, placement.dtype, placement.device));
  MANTA_ASSIGN_OR_RETURN(const int64_t available, AvailableBytes(placement.device));
  MANTA_ASSIGN_OR_RETURN(
      options.num_blocks,
      ChooseNumBlocks(
          {.num_blocks = request.num_blocks(),
           .memory_fraction = request.memory_fraction(),
           .block_bytes = ModelRunner::BlockBytes(config, options.limits.block_size, at::elementSize(placement.dtype),
                                                  placement.device.is_cuda()),
           .blocks_per_sequence = BlocksFor(options.max_model_len, options.limits.block_size),
           .max_num_seqs = options.limits.max_num_seqs},
          available));
  MANTA_ASSIGN_OR_RETURN(std::unique_ptr<ModelRunner> runner,
                         ModelRunner::Create(std::move(parameters), options.num_blocks, options.limits.block_size));

  std::shared_ptr<LoadedGenerator> loaded(new LoadedGenerator);
  loaded->tokenizer_folder_ =
      request.stop_tokenizer_path().empty() ? folder : std::filesystem::path(request.stop_tokenizer_path());
  loaded->runner_ = runner.get();
  loaded->engine_ = std::make_unique<Engine>(std::move(options), std::move(runner));
  return loaded;
}

LoadedGenerator::~LoadedGenerator() = default;

v1::ConfigureGeneratorReply LoadedGenerator::reply() const {
  v1::ConfigureGeneratorReply reply;
  reply.set_num_blocks(engine_->options().num_blocks);
  reply.set_block_size(engine_->options().limits.block_size);
  reply.set_max_model_len(engine_->options().max_model_len);
  return reply;
}

absl::StatusOr<std::unique_ptr<TextStream>> LoadedGenerator::MakeTextStream(const SamplingOptions& options) const {
  if (options.stop_strings.empty()) return nullptr;
  absl::MutexLock lock(&mutex_);
  if (tokenizer_ == nullptr) {
    absl::StatusOr<std::shared_ptr<const tokenizer::Tokenizer>> tokenizer =
        tokenizer::Tokenizer::Load(tokenizer_folder_);
    if (!tokenizer.ok()) return Annotate(tokenizer.status(), "stop_strings need the model's tokenizer");
    tokenizer_ = *std::move(tokenizer);
  }
  return std::make_unique<DecodedText>(tokenizer_);
}

absl::Status LoadedGenerator::UpdateWeights(const v1::UpdateWeightsRequest& request, const ChannelOpener& open_channel,
                                            v1::UpdateWeightsReply* reply) {
  const model::Parameters& parameters = runner_->parameters();
  if (client_ == nullptr) client_ = MakeClient(parameters.device(), open_channel);
  const auto slices_of = [&](const at::Tensor& flat) {
    std::vector<comm::DestinationSlice> slices;
    for (const model::ParameterSpec& spec : parameters.table()) {
      comm::DestinationSlice& slice = slices.emplace_back();
      slice.spec.name = spec.name;
      slice.spec.dtype = parameters.dtype() == at::kBFloat16 ? v1::DTYPE_BF16 : v1::DTYPE_F32;
      slice.spec.shape = spec.shape;
      slice.data =
          static_cast<std::byte*>(flat.mutable_data_ptr()) + spec.offset * static_cast<int64_t>(flat.element_size());
    }
    return slices;
  };
  comm::WeightDestination destination;
  destination.weights = slices_of(parameters.flat_values());
  destination.staging = [&]() -> absl::StatusOr<std::vector<comm::DestinationSlice>> {
    return model::CatchAten("updating weights", [&]() -> absl::StatusOr<std::vector<comm::DestinationSlice>> {
      if (!incoming_.defined()) incoming_ = at::zeros_like(parameters.flat_values());
      return slices_of(incoming_);
    });
  };
  destination.swap = [&] {
    return model::CatchAten("updating weights", [&]() -> absl::Status {
      runner_->SetWeights(incoming_);
      return absl::OkStatus();
    });
  };
  destination.exclusively = [&](uint64_t version, const std::function<absl::Status()>& write,
                                const std::function<bool()>& in_pieces) {
    return engine_->UpdateWeights(version, request.keep_prefix_cache(), write, in_pieces);
  };
  if (parameters.device().is_cuda()) destination.copy = cuda::Loaded()->copy;
  comm::ReceiveOptions options;
  options.verify = request.verify_checksums();
  MANTA_ASSIGN_OR_RETURN(const comm::ReceiveReport report, client_->Update(request.sources(), destination, options));
  // From GPU to GPU nothing is staged: the memory is better used otherwise.
  if (report.device) incoming_.reset();
  reply->set_version(report.version);
  reply->set_bytes(report.bytes);
  reply->set_transport(report.transport);
  return absl::OkStatus();
}

}  // namespace manta::gen
