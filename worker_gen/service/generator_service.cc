#include "worker_gen/service/generator_service.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/packed.h"
#include "common/base/status.h"
#include "common/rpc/status.h"
#include "worker_gen/service/generate_stream.h"

namespace manta::gen {
namespace {

constexpr int kMaxSamples = 4096;  // of one prompt, in one call

}  // namespace

absl::StatusOr<GeneratorService::Loaded> GeneratorService::loaded() const {
  absl::MutexLock lock(&mutex_);
  if (loaded_ == nullptr) return absl::FailedPreconditionError("the generator is not configured yet");
  return loaded_;
}

grpc::ServerUnaryReactor* GeneratorService::Configure(grpc::CallbackServerContext* context,
                                                      const v1::ConfigureGeneratorRequest* request,
                                                      v1::ConfigureGeneratorReply* reply) {
  return control_.Serve(context, [=, this]() -> absl::Status {
    if (loaded().ok()) return absl::FailedPreconditionError("the generator is configured already");
    MANTA_ASSIGN_OR_RETURN(Loaded loaded, LoadedGenerator::Load(*request));
    *reply = loaded->reply();
    absl::MutexLock lock(&mutex_);
    loaded_ = std::move(loaded);
    if (stopping_) loaded_->engine().BeginStop();
    return absl::OkStatus();
  });
}

grpc::ServerWriteReactor<v1::GenerateReply>* GeneratorService::Generate(grpc::CallbackServerContext*,
                                                                        const v1::GenerateRequest* request) {
  // For each sample a chunk a token and the last one: what max_new_tokens allows is the most that can wait.
  const size_t samples = static_cast<size_t>(std::max(request->seeds_size(), 1));
  const size_t most = (static_cast<size_t>(std::max(request->sampling().max_new_tokens(), 0)) + 1) * samples;
  auto writer = GenerateCall::MakeWriter(most);
  if (absl::Status status = Submit(*request, writer); !status.ok()) writer->Finish(status);
  return writer->reactor();
}

absl::Status GeneratorService::Submit(const v1::GenerateRequest& request,
                                      const std::shared_ptr<rpc::StreamWriter<v1::GenerateReply>>& writer) {
  MANTA_ASSIGN_OR_RETURN(Loaded loaded, this->loaded());
  MANTA_ASSIGN_OR_RETURN(const std::vector<int32_t> prompt, Unpack<int32_t>(request.prompt_tokens(), "prompt_tokens"));
  if (request.seeds_size() > kMaxSamples) {
    return UserError(absl::StrCat("seeds: ", request.seeds_size(), " samples of one prompt, at most ", kMaxSamples));
  }
  const int samples = std::max(request.seeds_size(), 1);
  auto call = std::make_shared<GenerateCall>(writer, request.stream(), samples);
  call->several = request.seeds_size() > 0;
  std::vector<GenerationRequest> generations;
  std::vector<std::shared_ptr<RequestSink>> sinks;
  for (int sample = 0; sample < samples; ++sample) {
    v1::SamplingParams sampling = request.sampling();
    if (call->several) sampling.set_seed(request.seeds(sample));
    GenerationRequest& generation = generations.emplace_back();
    generation.prompt = prompt;
    MANTA_ASSIGN_OR_RETURN(generation.options, SamplingOptions::FromProto(sampling));
    MANTA_ASSIGN_OR_RETURN(generation.text, loaded->MakeTextStream(generation.options));
    generation.priority = request.priority();
    generation.sink = sinks.emplace_back(std::make_shared<GenerateStream>(call, sample));
  }
  std::vector<uint64_t> ids;
  const auto results = loaded->engine().SubmitSamples(std::move(generations));
  for (int sample = 0; sample < samples; ++sample) {
    const absl::StatusOr<uint64_t>& id = results[sample];
    if (!id.ok() && !call->several) return id.status();
    if (id.ok()) {
      ids.push_back(*id);
    } else {
      sinks[sample]->OnFinish(id.status(), {});  // it never reached the engine
    }
  }
  std::weak_ptr<LoadedGenerator> weak = loaded;
  writer->OnCancel([weak, ids] {
    if (Loaded alive = weak.lock()) {
      for (uint64_t id : ids) alive->engine().Cancel(id);
    }
  });
  return absl::OkStatus();
}

grpc::ServerUnaryReactor* GeneratorService::Pause(grpc::CallbackServerContext* context, const v1::PauseRequest* request,
                                                  v1::PauseReply* reply) {
  return control_.Serve(context, [=, this]() -> absl::Status {
    MANTA_ASSIGN_OR_RETURN(Loaded loaded, this->loaded());
    MANTA_ASSIGN_OR_RETURN(const EngineStats stats, loaded->engine().Pause(request->drop_cache()));
    reply->set_num_running(stats.num_running);
    reply->set_num_waiting(stats.num_waiting);
    return absl::OkStatus();
  });
}

grpc::ServerUnaryReactor* GeneratorService::Resume(grpc::CallbackServerContext* context, const v1::ResumeRequest*,
                                                   v1::ResumeReply*) {
  return control_.Serve(context, [this]() -> absl::Status {
    MANTA_ASSIGN_OR_RETURN(Loaded loaded, this->loaded());
    loaded->engine().Resume();
    return absl::OkStatus();
  });
}

grpc::ServerUnaryReactor* GeneratorService::UpdateWeights(grpc::CallbackServerContext* context,
                                                          const v1::UpdateWeightsRequest* request,
                                                          v1::UpdateWeightsReply* reply) {
  return control_.Serve(context, [=, this]() -> absl::Status {
    MANTA_ASSIGN_OR_RETURN(Loaded loaded, this->loaded());
    const absl::Time start = absl::Now();
    channels_.KeepOnly({request->sources().addresses().begin(), request->sources().addresses().end()});
    const auto open = [this](const std::string& address) { return channels_.Open(address); };
    MANTA_RETURN_IF_ERROR(loaded->UpdateWeights(*request, open, reply));
    reply->set_seconds(absl::ToDoubleSeconds(absl::Now() - start));
    return absl::OkStatus();
  });
}

actor::Load GeneratorService::load() const {
  const absl::StatusOr<Loaded> loaded = this->loaded();
  if (!loaded.ok()) return {};
  const EngineStats stats = (*loaded)->engine().stats();
  return {.running = static_cast<uint64_t>(stats.num_running + stats.num_waiting),
          .done = stats.generated_tokens + stats.prompt_tokens};
}

grpc::ServerUnaryReactor* GeneratorService::GetStats(grpc::CallbackServerContext* context,
                                                     const v1::GetGeneratorStatsRequest*, v1::GeneratorStats* reply) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  const absl::StatusOr<Loaded> loaded = this->loaded();
  if (loaded.ok()) {
    const EngineStats stats = (*loaded)->engine().stats();
    reply->set_num_running(stats.num_running);
    reply->set_num_waiting(stats.num_waiting);
    reply->set_num_blocks_free(stats.num_blocks_free);
    reply->set_num_blocks(stats.num_blocks);
    reply->set_generated_tokens(stats.generated_tokens);
    reply->set_prompt_tokens(stats.prompt_tokens);
    reply->set_cached_prompt_tokens(stats.cached_prompt_tokens);
    reply->set_preemptions(stats.preemptions);
    reply->set_weight_version(stats.weight_version);
  }
  reactor->Finish(rpc::ToGrpc(loaded.status()));
  return reactor;
}

void GeneratorService::BeginStop() {
  absl::MutexLock lock(&mutex_);
  stopping_ = true;
  if (loaded_ != nullptr) loaded_->engine().BeginStop();
}

}  // namespace manta::gen
