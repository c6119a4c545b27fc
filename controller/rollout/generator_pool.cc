#include "controller/rollout/generator_pool.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/packed.h"
#include "common/rpc/call.h"

namespace manta::controller {
namespace {

template <typename T>
absl::Status Append(const std::string& bytes, std::vector<T>* values, const char* field) {
  if (AppendUnpacked(bytes, values)) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("a generator sent ", bytes.size(), " bytes of ", field));
}

// What has come of one sample.
struct Gathered {
  Completion completion;
  std::vector<uint64_t> versions;
  absl::Status status;

  void Add(const v1::GenerateChunk& part) {
    if (!status.ok()) return;
    status = Append(part.tokens(), &completion.tokens, "tokens");
    if (status.ok()) status = Append(part.logprobs(), &completion.logprobs, "log-probabilities");
    if (status.ok()) status = Append(part.weight_versions(), &versions, "weight versions");
    if (status.ok() && part.has_status()) status = FromProto(part.status());
    if (part.finish_reason() != v1::FINISH_REASON_UNSPECIFIED) {
      completion.finish_reason = part.finish_reason();
      completion.cached_prompt_tokens = part.cached_prompt_tokens();
    }
  }

  // `call` is how the call as a whole ended.
  absl::StatusOr<Completion> Finish(const absl::Status& call, int generator) {
    if (!status.ok()) return Annotate(status, absl::StrCat("gen-", generator, ": generate"));
    const bool whole = completion.finish_reason != v1::FINISH_REASON_UNSPECIFIED &&
                       completion.logprobs.size() == completion.tokens.size();
    if (!whole && !call.ok()) return call;
    if (!whole) {
      return absl::InternalError(absl::StrCat("gen-", generator, ": the generation ended without saying why, after ",
                                              completion.tokens.size(), " tokens and ", completion.logprobs.size(),
                                              " log-probabilities"));
    }
    if (!versions.empty()) {
      const auto [oldest, newest] = std::minmax_element(versions.begin(), versions.end());
      completion.oldest_weight_version = *oldest;
      completion.newest_weight_version = *newest;
    }
    return std::move(completion);
  }
};

}  // namespace

GeneratorPool::GeneratorPool(EventLoop& loop, std::vector<std::shared_ptr<grpc::Channel>> channels, CancelToken cancel,
                             absl::Duration generate_deadline)
    : loop_(loop), cancel_(std::move(cancel)), generate_deadline_(generate_deadline) {
  for (auto& channel : channels) generators_.push_back({v1::GeneratorService::NewStub(channel)});
}

template <typename Request, typename Reply>
Task<absl::StatusOr<std::vector<Reply>>> GeneratorPool::CallAll(
    void (Stub::async::*method)(grpc::ClientContext*, const Request*, Reply*, std::function<void(grpc::Status)>),
    Request request, absl::Duration deadline, const char* what) {
  std::vector<Task<absl::StatusOr<Reply>>> calls;
  for (auto& generator : generators_) {
    calls.push_back(rpc::Call(loop_, generator.stub->async(), method, request,
                              rpc::CallOptions{.deadline = deadline, .cancel = cancel_}));
  }
  std::vector<absl::StatusOr<Reply>> replies = co_await WhenAll(std::move(calls));
  std::vector<Reply> values;
  for (size_t i = 0; i < replies.size(); ++i) {
    if (!replies[i].ok()) co_return Annotate(replies[i].status(), absl::StrCat("gen-", i, ": ", what));
    values.push_back(std::move(*replies[i]));
  }
  co_return values;
}

Task<absl::Status> GeneratorPool::Configure(v1::ConfigureGeneratorRequest request) {
  auto replies = co_await CallAll<v1::ConfigureGeneratorRequest, v1::ConfigureGeneratorReply>(
      &Stub::async::Configure, std::move(request), absl::Minutes(20), "configure");
  co_return replies.status();
}

Task<absl::StatusOr<std::vector<v1::GeneratorStats>>> GeneratorPool::Stats() {
  return CallAll<v1::GetGeneratorStatsRequest, v1::GeneratorStats>(&Stub::async::GetStats, v1::GetGeneratorStatsRequest(),
                                                                   absl::Seconds(20), "ask how it is");
}

int GeneratorPool::Assign(int num_samples) {
  const auto least = std::min_element(generators_.begin(), generators_.end(), [](const auto& a, const auto& b) {
    return a.outstanding < b.outstanding;
  });
  least->outstanding += num_samples;
  return static_cast<int>(least - generators_.begin());
}

Task<std::vector<absl::StatusOr<Completion>>> GeneratorPool::Generate(int index, std::vector<int32_t> prompt,
                                                                      v1::SamplingParams sampling,
                                                                      std::vector<uint64_t> seeds) {
  Generator& generator = generators_[index];
  v1::GenerateRequest request;
  request.set_prompt_tokens(prompt.data(), prompt.size() * sizeof(int32_t));
  *request.mutable_sampling() = std::move(sampling);
  request.mutable_seeds()->Add(seeds.begin(), seeds.end());
  rpc::CallOptions options{.deadline = generate_deadline_, .cancel = cancel_};
  auto stream = rpc::OpenStream(loop_, generator.stub->async(), &Stub::async::Generate, request, options);
  std::vector<Gathered> samples(seeds.size());
  absl::Status status;
  while (true) {
    absl::StatusOr<std::optional<v1::GenerateReply>> reply = co_await stream.Next();
    if (!reply.ok()) status = Annotate(reply.status(), absl::StrCat("gen-", index, ": generate"));
    if (!reply.ok() || !reply->has_value()) break;
    for (const v1::GenerateChunk& chunk : (*reply)->chunks()) {
      if (chunk.sample() < 0 || static_cast<size_t>(chunk.sample()) >= samples.size()) {
        status = absl::InternalError(
            absl::StrCat("gen-", index, ": a chunk of sample ", chunk.sample(), " of ", seeds.size()));
        break;
      }
      samples[chunk.sample()].Add(chunk);
    }
    if (!status.ok()) break;
  }
  generator.outstanding -= static_cast<int64_t>(seeds.size());
  std::vector<absl::StatusOr<Completion>> completions;
  completions.reserve(samples.size());
  for (Gathered& sample : samples) completions.push_back(sample.Finish(status, index));
  co_return completions;
}

Task<absl::StatusOr<v1::UpdateWeightsReply>> GeneratorPool::UpdateWeights(v1::UpdateWeightsRequest request) {
  auto replies = co_await CallAll<v1::UpdateWeightsRequest, v1::UpdateWeightsReply>(
      &Stub::async::UpdateWeights, std::move(request), absl::Minutes(10), "update weights");
  if (!replies.ok()) co_return replies.status();
  co_return std::move((*replies)[0]);
}

}  // namespace manta::controller
