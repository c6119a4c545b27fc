// Rotary position embedding (Su et al., "RoFormer", 2021) with the scalings of Hugging Face configs: linear, dynamic
// NTK, YaRN (Peng et al., 2023) and llama3. Frequencies are computed in float32 as transformers does, since that is
// what models were trained with.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <mutex>
#include <vector>

#include "common/model/config.h"

namespace manta::model {

struct RotaryFrequencies {
  std::vector<float> inverse;   // [head_dim / 2]
  double attention_factor = 1;  // multiplies cos and sin
};

// `sequence_length` matters to the dynamic type only.
RotaryFrequencies ComputeRotaryFrequencies(const ModelConfig& config, int64_t sequence_length);

// cos and sin for given positions. Tables grow to the largest position seen, by doubling. Thread-safe.
class RotaryTable {
 public:
  explicit RotaryTable(const ModelConfig& config);
  struct Rows {
    at::Tensor cos, sin;  // [num_tokens, head_dim / 2] float32
  };
  // positions: [num_tokens] int64 on any device; rows come back on it. Dynamic scaling beyond max_position_embeddings
  // takes a run of rising positions for one sequence and its last position for the length, as transformers does.
  Rows Lookup(const at::Tensor& positions);

 private:
  Rows Compute(const std::vector<int64_t>& positions, const RotaryFrequencies& frequencies) const;
  Rows LookupDynamic(const at::Tensor& positions);

  const ModelConfig config_;
  const RotaryFrequencies frequencies_;
  std::mutex mutex_;
  at::Tensor cos_, sin_;  // [positions, head_dim / 2] on the device last asked for
};

}  // namespace manta::model
