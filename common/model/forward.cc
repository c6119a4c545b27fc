#include "common/model/forward.h"

#include <c10/core/GradMode.h>

#include <algorithm>

#include "common/base/status.h"
#include "common/base/strings.h"
#include "common/model/catch_aten.h"
#include "common/model/layer.h"
#include "common/model/ops.h"
#include "common/model/rotary.h"

namespace manta::model {
namespace {

absl::Status CheckInputs(const Parameters& parameters, const at::Tensor& tokens, const at::Tensor& positions) {
  if (tokens.dim() != 1 || tokens.scalar_type() != at::kLong || positions.scalar_type() != at::kLong ||
      positions.sizes() != tokens.sizes()) {
    return UserError("tokens and positions: expected two int64 vectors of one length");
  }
  // On a GPU the check would wait for the device: there the caller vouches for its tokens.
  if (!tokens.is_cpu() || tokens.numel() == 0) return absl::OkStatus();
  const int64_t vocab = parameters.config().vocab_size;
  const at::Tensor ids = tokens.contiguous(), places = positions.contiguous();
  for (const int64_t* id = ids.const_data_ptr<int64_t>(); id != ids.const_data_ptr<int64_t>() + ids.numel(); ++id) {
    if (*id < 0 || *id >= vocab) return UserError(StrCat("token ", *id, " is outside the vocabulary of ", vocab));
  }
  const int64_t* const p = places.const_data_ptr<int64_t>();
  if (std::any_of(p, p + places.numel(), [](int64_t position) { return position < 0; })) {
    return UserError("a position is negative");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<at::Tensor> Forward(const Parameters& parameters, const at::Tensor& tokens, const at::Tensor& positions,
                                   AttentionBackend& attention, const ForwardOptions& options) {
  return CatchAten("forward", [&]() -> absl::StatusOr<at::Tensor> {
    MANTA_RETURN_IF_ERROR(CheckInputs(parameters, tokens, positions));
    const ModelConfig& config = parameters.config();
    const ModelWeights& weights = parameters.weights();
    const RotaryTable::Rows rotary = parameters.rotary().Lookup(positions);
    at::Tensor x = ops::Embedding(tokens, weights.embedding);
    const auto keep = [&options](const at::Tensor& output) {
      // Without gradients the next layer writes over it.
      if (options.layer_outputs == nullptr) return;
      options.layer_outputs->push_back(c10::GradMode::is_enabled() ? output : output.clone());
    };
    keep(x);
    const bool recompute = options.recompute_with != nullptr && c10::GradMode::is_enabled() && x.requires_grad();
    for (int i = 0; i < config.num_layers; ++i) {
      if (recompute) {
        x = RecomputedLayer(parameters, i, x, rotary, options.recompute_with);
      } else {
        x = Layer(config, weights.layers[static_cast<size_t>(i)], i, x, rotary, attention);
      }
      keep(x);
    }
    return ops::RmsNorm(x, weights.norm, config.rms_norm_eps);
  });
}

absl::StatusOr<at::Tensor> Logits(const Parameters& parameters, const at::Tensor& hidden) {
  return CatchAten("logits", [&]() -> absl::StatusOr<at::Tensor> {
    const at::Tensor logits = ops::Linear(hidden, parameters.weights().lm_head, Weight());
    return logits.scalar_type() == at::kDouble ? logits : logits.to(at::kFloat);
  });
}

}  // namespace manta::model
