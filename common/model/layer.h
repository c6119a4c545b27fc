// One decoder layer, and the same with its activations thrown away. Internal to common/model. They may throw c10::Error.
#pragma once

#include <ATen/ATen.h>

#include <memory>

#include "common/model/attention_backend.h"
#include "common/model/parameters.h"
#include "common/model/rotary.h"

namespace manta::model {

// Attention and MLP, each after an RMSNorm and added to the residual stream. x: [num_tokens, hidden]; where gradients
// are off it is written over.
at::Tensor Layer(const ModelConfig& config, const LayerWeights& weights, int index, const at::Tensor& x,
                 const RotaryTable::Rows& rotary, AttentionBackend& attention);

// The same with gradients, but of what it computes only x is kept: backward runs the layer again (Chen et al., 2016),
// attending through `attention`, which the graph keeps. Values and gradients are those of Layer, bit for bit on the CPU.
at::Tensor RecomputedLayer(const Parameters& parameters, int index, const at::Tensor& x,
                           const RotaryTable::Rows& rotary, std::shared_ptr<AttentionBackend> attention);

}  // namespace manta::model
