// The table of a model's parameters: Hugging Face names and shapes, how tensor parallelism splits each, and where each
// lies in the flat buffer that holds them all. A pure function of the config, free of LibTorch: trainer, generator,
// checkpoint and weight channel use the same one.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/model/config.h"

namespace manta::model {

struct ParameterSpec {
  std::string name;            // "model.layers.0.self_attn.q_proj.weight"
  std::vector<int64_t> shape;  // [out, in] for matrices
  int shard_dim = -1;          // the dimension that tensor parallelism splits; -1: every rank holds it whole
  int layer = -1;              // -1: outside the layers
  // Parameters with the same group lie next to each other along dimension 0 and are multiplied as one matrix
  // (q, k, v: "model.layers.0.self_attn.qkv_proj.weight"; gate, up). Empty: alone.
  std::string group;
  int64_t offset = 0;  // in elements, in the flat buffer
  int64_t numel = 0;
};

// In the order of the flat buffer: embedding, layers, final norm, lm_head (absent where tied).
std::vector<ParameterSpec> ParameterTable(const ModelConfig& config);

// Elements of the flat buffer: groups start at multiples of 16 elements; the gaps stay zero.
int64_t FlatSize(const std::vector<ParameterSpec>& table);

}  // namespace manta::model
