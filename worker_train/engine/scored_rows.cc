#include "worker_train/engine/scored_rows.h"

#include <c10/core/GradMode.h>

#include <memory>

#include "common/base/check.h"
#include "common/base/status.h"
#include "common/model/catch_aten.h"
#include "common/model/forward.h"
#include "common/model/log_prob.h"
#include "common/model/packed_attention.h"
#include "worker_train/engine/scoring_plan.h"

namespace manta::train {
namespace {

at::Tensor Indices(const std::vector<int64_t>& values, at::Device device) {
  return at::tensor(values, at::TensorOptions().dtype(at::kLong)).to(device);
}

// Whether `rows` are all rows in order.
bool IsEveryRow(const std::vector<int64_t>& rows, size_t num_rows) {
  if (rows.size() != num_rows) return false;
  for (size_t i = 0; i < num_rows; ++i) {
    if (rows[i] != static_cast<int64_t>(i)) return false;
  }
  return true;
}

}  // namespace

absl::StatusOr<ScoredRows> ScoredRows::Compute(const model::Parameters& parameters, std::span<const int32_t> lengths,
                                               std::span<const int32_t> tokens, std::span<const float> wanted,
                                               const ScoreOptions& options) {
  ScoredRows scored;
  ScoringPlan plan = PlanScoring(lengths, tokens, wanted);
  if (plan.rows.empty()) return scored;
  return model::CatchAten("scoring a microbatch", [&]() -> absl::StatusOr<ScoredRows> {
    const at::Device device = parameters.device();
    const at::Tensor input = Indices(plan.tokens, device);
    const at::Tensor positions = model::PackedPositions(plan.layout).to(device);
    const auto attention = std::make_shared<model::PackedAttention>(std::move(plan.layout));
    model::ForwardOptions forward;
    if (options.recompute) forward.recompute_with = attention;
    MANTA_ASSIGN_OR_RETURN(at::Tensor hidden, model::Forward(parameters, input, positions, *attention, forward));
    if (!IsEveryRow(plan.rows, plan.tokens.size())) hidden = hidden.index_select(0, Indices(plan.rows, device));
    scored.output_ = hidden;
    // The log-probabilities get a graph of their own, so that with and without the filter they share one pass back
    // through the model.
    scored.leaf_ = hidden.detach();
    if (c10::GradMode::is_enabled()) scored.leaf_.requires_grad_(true);
    const at::Tensor targets = Indices(plan.targets, device);
    model::LogProbOptions log_prob;
    log_prob.temperature = options.temperature;
    if (options.chunk_rows > 0) log_prob.chunk_bytes = options.chunk_rows * parameters.config().vocab_size * 4;
    if (options.unfiltered && options.filters()) {
      MANTA_ASSIGN_OR_RETURN(const model::LogProbs result,
                             model::TokenLogProbs(parameters, scored.leaf_, targets, log_prob));
      scored.unfiltered_ = result.log_probs;
    }
    log_prob.top_k = options.top_k;
    log_prob.top_p = options.top_p;
    MANTA_ASSIGN_OR_RETURN(const model::LogProbs result,
                           model::TokenLogProbs(parameters, scored.leaf_, targets, log_prob));
    scored.logprobs_ = result.log_probs;
    scored.places_ = std::move(plan.places);
    scored.scores_ = std::move(plan.scores);
    return std::move(scored);
  });
}

void ScoredRows::Scatter(const at::Tensor& values, std::span<float> out) const {
  if (places_.empty()) return;
  const at::Tensor host = values.detach().to(at::kCPU).contiguous();
  const float* data = host.const_data_ptr<float>();
  for (size_t i = 0; i < places_.size(); ++i) out[static_cast<size_t>(places_[i])] = data[scores_[i]];
}

at::Tensor ScoredRows::Gather(std::span<const float> values) const {
  const at::Tensor host = at::zeros({logprobs_.size(0)}, at::kFloat);
  float* data = host.mutable_data_ptr<float>();
  for (size_t i = 0; i < places_.size(); ++i) data[scores_[i]] += values[static_cast<size_t>(places_[i])];
  return host.to(output_.device());
}

absl::Status ScoredRows::Backward(std::span<const float> gradient, std::span<const float> unfiltered) {
  if (places_.empty()) return absl::OkStatus();
  MANTA_CHECK(unfiltered.empty() || unfiltered_.defined());
  return model::CatchAten("backward", [&]() -> absl::Status {
    logprobs_.backward(Gather(gradient));
    if (!unfiltered.empty()) unfiltered_.backward(Gather(unfiltered));
    output_.backward(leaf_.grad());
    return absl::OkStatus();
  });
}

}  // namespace manta::train
