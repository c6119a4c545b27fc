// The generators, as one: each request goes to the generator that its prompt belongs to, or to the one with least to do.
//
// Samples of one prompt go to the same generator, which keeps the prompt's blocks once for all of them. Runs on the
// controller's loop. A generator that dies fails the requests that it had, each with the reason; the pool owns its stubs.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/base/event_loop.h"
#include "common/base/task.h"
#include "grpcpp/channel.h"
#include "manta/v1/generator.grpc.pb.h"

namespace manta::controller {

struct Completion {
  std::vector<int32_t> tokens;             // [n] what was generated, the end-of-sequence token included
  std::vector<float> logprobs;             // [n] under the distribution that each was drawn from
  uint64_t oldest_weight_version = 0;
  uint64_t newest_weight_version = 0;
  v1::FinishReason finish_reason = v1::FINISH_REASON_UNSPECIFIED;
  int32_t cached_prompt_tokens = 0;
};

class GeneratorPool {
 public:
  GeneratorPool(EventLoop& loop, std::vector<std::shared_ptr<grpc::Channel>> channels, CancelToken cancel,
                absl::Duration generate_deadline);

  int size() const { return static_cast<int>(generators_.size()); }

  Task<absl::Status> Configure(v1::ConfigureGeneratorRequest request);

  // Picks the generator for a prompt whose `num_samples` samples should share it; pass it to Generate.
  int Assign(int num_samples);
  // One sample for each seed, in their order; one call, so that a group costs one message each way.
  Task<std::vector<absl::StatusOr<Completion>>> Generate(int generator, std::vector<int32_t> prompt,
                                                         v1::SamplingParams sampling, std::vector<uint64_t> seeds);

  // Of each; FAILED_PRECONDITION where one is not configured.
  Task<absl::StatusOr<std::vector<v1::GeneratorStats>>> Stats();

  // Every generator takes the version; the slowest decides when it is done.
  Task<absl::StatusOr<v1::UpdateWeightsReply>> UpdateWeights(v1::UpdateWeightsRequest request);

 private:
  using Stub = v1::GeneratorService::Stub;
  struct Generator {
    std::unique_ptr<Stub> stub;
    int64_t outstanding = 0;  // samples assigned and not finished
  };
  template <typename Request, typename Reply>
  Task<absl::StatusOr<std::vector<Reply>>> CallAll(void (Stub::async::*method)(grpc::ClientContext*, const Request*,
                                                                               Reply*, std::function<void(grpc::Status)>),
                                                   Request request, absl::Duration deadline, const char* what);

  EventLoop& loop_;
  std::vector<Generator> generators_;
  CancelToken cancel_;
  absl::Duration generate_deadline_;
};

}  // namespace manta::controller
