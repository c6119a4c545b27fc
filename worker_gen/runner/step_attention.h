// A generator's attention: the model's attention backend, told before each forward which pieces its tokens belong to.
#pragma once

#include <cstdint>

#include "absl/types/span.h"
#include "common/model/attention_backend.h"
#include "worker_gen/runner/runner.h"

namespace manta::gen {

struct BlockCopy {
  int32_t from = 0, to = 0;
};

class StepAttention : public model::AttentionBackend {
 public:
  // The pieces that the tokens of the next forward belong to, one after the other. They must live until it is done.
  virtual void SetChunks(absl::Span<const SequenceChunk> chunks) = 0;
  // Copies whole blocks, the keys and values of all layers, behind whatever the forward before wrote. No block is both
  // copied from and to, or copied to twice. May throw c10::Error.
  virtual void CopyBlocks(absl::Span<const BlockCopy> copies) = 0;
};

}  // namespace manta::gen
