// A request on its way through the engine, and what it tells its owner.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "manta/v1/common.pb.h"
#include "worker_gen/kv_cache/kv_cache.h"
#include "worker_gen/sampling/sampling_options.h"
#include "worker_gen/sampling/stop.h"

namespace manta::gen {

struct GeneratedToken {
  int32_t token = 0;
  float logprob = 0;
  float raw_logprob = 0;
  uint64_t weight_version = 0;  // which weights made it
};

// What is known of a sample once it has ended.
struct Completion {
  v1::FinishReason reason = v1::FINISH_REASON_UNSPECIFIED;
  int32_t num_prompt_tokens = 0;
  // Not computed when it was first admitted: found in the prefix cache, or all of it, computed for another sample.
  int32_t cached_prompt_tokens = 0;
  int32_t preemptions = 0;
  std::string stop_string;
};

// Hears of one request, on the engine's thread; must not block, nor call the engine back. OnFinish comes exactly once,
// last; its status is OK exactly if the sample is whole.
class RequestSink {
 public:
  virtual ~RequestSink() = default;
  virtual void OnToken(const GeneratedToken& token) = 0;
  virtual void OnFinish(const absl::Status& status, const Completion& completion) = 0;
};

struct GenerationRequest {
  std::vector<int32_t> prompt;
  SamplingOptions options;
  int32_t priority = 0;              // larger is admitted earlier
  std::unique_ptr<TextStream> text;  // where options has stop strings
  std::shared_ptr<RequestSink> sink;
};

struct Sequence {
  Sequence(uint64_t id, GenerationRequest request, absl::Span<const int32_t> eos_ids)
      : id(id),
        priority(request.priority),
        options(std::move(request.options)),
        stop(options, eos_ids, std::move(request.text)),
        sink(std::move(request.sink)),
        tokens(std::move(request.prompt)),
        num_prompt_tokens(static_cast<int32_t>(tokens.size())) {
    completion.num_prompt_tokens = num_prompt_tokens;
  }

  int32_t num_tokens() const { return static_cast<int32_t>(tokens.size()); }
  int32_t num_generated() const { return num_tokens() - num_prompt_tokens; }

  uint64_t id;  // in the order of arrival
  const int32_t priority;
  const SamplingOptions options;
  StopChecker stop;
  const std::shared_ptr<RequestSink> sink;
  std::vector<int32_t> tokens;  // prompt and what was generated
  const int32_t num_prompt_tokens;
  uint64_t prompt_id = 0;    // samples that were submitted together, with the same prompt, have the same; 0: none other
  int32_t num_computed = 0;  // of tokens, in the cache
  BlockTable table;
  bool was_admitted = false;
  Completion completion;
};

}  // namespace manta::gen
