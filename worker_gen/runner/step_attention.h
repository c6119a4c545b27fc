// A generator's attention: the model's attention backend, told before each forward which pieces its tokens belong to.
#pragma once

#include "absl/types/span.h"
#include "common/model/attention_backend.h"
#include "worker_gen/runner/runner.h"

namespace manta::gen {

class StepAttention : public model::AttentionBackend {
 public:
  // The pieces that the tokens of the next forward belong to, one after the other. They must live until it is done.
  virtual void SetChunks(absl::Span<const SequenceChunk> chunks) = 0;
};

}  // namespace manta::gen
