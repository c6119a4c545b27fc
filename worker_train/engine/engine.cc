#include "worker_train/engine/engine.h"

#include <c10/core/GradMode.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "common/base/log.h"
#include "common/base/status.h"
#include "common/model/catch_aten.h"
#include "worker_train/loss/nll.h"

namespace manta::train {
namespace {

class Stopwatch {
 public:
  double seconds() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

absl::StatusOr<ScoreOptions> Score(double temperature, int64_t top_k, double top_p, int64_t chunk_rows) {
  if (temperature < 0 || !std::isfinite(temperature)) {
    return absl::InvalidArgumentError(absl::StrCat("temperature is ", temperature, "; it must be positive"));
  }
  if (top_p < 0 || top_p > 1) {
    return absl::InvalidArgumentError(absl::StrCat("top_p is ", top_p, "; it must lie in (0, 1]"));
  }
  ScoreOptions options;
  options.temperature = temperature == 0 ? 1 : temperature;
  options.top_k = std::max<int64_t>(top_k, 0);
  options.top_p = top_p == 0 ? 1 : top_p;
  options.chunk_rows = chunk_rows;
  return options;
}

}  // namespace

absl::StatusOr<Engine::Loss> Engine::ParseLoss(const v1::TrainRequest& request,
                                               const std::vector<BatchView>& microbatches) {
  Loss loss;
  MANTA_ASSIGN_OR_RETURN(
      loss.score, Score(request.temperature(), request.top_k(), request.top_p(), config_.logprob_chunk_tokens()));
  loss.score.recompute = config_.activation_checkpointing();
  loss.global_valid_toks = request.global_valid_toks();
  loss.global_valid_seqs = request.global_valid_seqs();
  switch (request.loss_case()) {
    case v1::TrainRequest::kNll:
      break;
    case v1::TrainRequest::kClippedPg: {
      MANTA_ASSIGN_OR_RETURN(loss.clipped_pg, ParseClippedPgOptions(request.clipped_pg()));
      // The KL term is of the policy itself, whatever filter it is sampled with.
      loss.score.unfiltered = NeedsReference(*loss.clipped_pg);
      break;
    }
    default:
      return absl::InvalidArgumentError("the request names no loss");
  }
  for (const BatchView& batch : microbatches) MANTA_RETURN_IF_ERROR(CheckBatch(loss, batch));
  if (loss.clipped_pg && loss.clipped_pg->positive_nll_weight != 0) {
    // Its denominator is a count over the whole global batch, which only the ranks together know.
    for (const BatchView& batch : microbatches) {
      size_t start = 0;
      for (size_t i = 0; i < batch.lengths.size(); ++i) {
        const size_t end = start + static_cast<size_t>(batch.lengths[i]);
        for (size_t t = start + 1; t < end; ++t) {
          if (batch.rewards[i] > 0) loss.global_correct_toks += batch.token_mask[t] * batch.sample_mask[i];
        }
        start = end;
      }
    }
    if (collective_ != nullptr) {
      MANTA_RETURN_IF_ERROR(collective_->AllReduceSum(absl::MakeSpan(&loss.global_correct_toks, 1)));
    }
  }
  return loss;
}

absl::Status Engine::CheckBatch(const Loss& loss, const BatchView& batch) const {
  const auto need = [&](bool there, const char* name) {
    return there || batch.lengths.empty() ? absl::OkStatus()
                                          : absl::InvalidArgumentError(absl::StrCat("batch.", name, " is missing"));
  };
  MANTA_RETURN_IF_ERROR(need(!batch.token_mask.empty(), "token_mask"));
  MANTA_RETURN_IF_ERROR(need(!batch.sample_mask.empty(), "sample_mask"));
  if (!loss.clipped_pg) return absl::OkStatus();
  const ClippedPgOptions& options = *loss.clipped_pg;
  MANTA_RETURN_IF_ERROR(need(!batch.advantages.empty(), "advantages"));
  MANTA_RETURN_IF_ERROR(need(!batch.generation_logprobs.empty(), "generation_logprobs"));
  MANTA_RETURN_IF_ERROR(need(!batch.prev_logprobs.empty() || options.force_on_policy_ratio, "prev_logprobs"));
  MANTA_RETURN_IF_ERROR(need(!batch.reference_logprobs.empty() || !NeedsReference(options), "reference_logprobs"));
  return need(!batch.rewards.empty() || options.positive_nll_weight == 0, "rewards");
}

absl::Status Engine::RunMicrobatch(const Loss& loss, const BatchView& batch, MetricSet& metrics) {
  const size_t total = batch.tokens.size();
  // What the loss reads: valid tokens of valid samples.
  std::vector<float> wanted(total, 0.0f), logprobs(total, 0.0f), gradient(total, 0.0f);
  size_t start = 0;
  for (size_t i = 0; i < batch.lengths.size(); ++i) {
    const size_t end = start + static_cast<size_t>(batch.lengths[i]);
    for (size_t t = start + 1; t < end; ++t) wanted[t] = batch.token_mask[t] * batch.sample_mask[i];
    start = end;
  }
  MANTA_ASSIGN_OR_RETURN(ScoredRows scored,
                         ScoredRows::Compute(parameters_, batch.lengths, batch.tokens, wanted, loss.score));
  scored.CopyTo(logprobs);
  std::vector<float> unfiltered, unfiltered_gradient;
  if (loss.score.unfiltered && loss.score.filters()) {
    unfiltered.assign(total, 0.0f);
    unfiltered_gradient.assign(total, 0.0f);
    scored.CopyUnfilteredTo(unfiltered);
  }
  PackedTokens<float> tokens;
  tokens.lengths = batch.lengths;
  tokens.token_mask = batch.token_mask;
  tokens.sample_mask = batch.sample_mask;
  tokens.current_logprobs = logprobs;
  tokens.unfiltered_logprobs = unfiltered;
  tokens.advantages = batch.advantages;
  tokens.prev_logprobs = batch.prev_logprobs;
  tokens.generation_logprobs = batch.generation_logprobs;
  tokens.reference_logprobs = batch.reference_logprobs;
  tokens.rewards = batch.rewards;
  tokens.global_valid_toks = loss.global_valid_toks;
  tokens.global_valid_seqs = loss.global_valid_seqs;
  tokens.global_correct_toks = loss.global_correct_toks;
  const LogprobGradients<float> gradients{gradient, unfiltered_gradient};
  MetricSet part;
  if (loss.clipped_pg) {
    ClippedPgLoss<float>(*loss.clipped_pg, tokens, gradients, part);
  } else {
    NllLoss<float>(tokens, gradients, part);
  }
  metrics.Merge(part);
  if (!c10::GradMode::is_enabled()) return absl::OkStatus();
  return scored.Backward(gradient, unfiltered_gradient);
}

absl::Status Engine::RunMicrobatches(const Loss& loss, const std::vector<BatchView>& microbatches, MetricSet& metrics) {
  for (size_t i = 0; i < microbatches.size(); ++i) {
    const absl::Status status = RunMicrobatch(loss, microbatches[i], metrics);
    if (!status.ok()) return Annotate(status, absl::StrCat("microbatch ", i));
    on_work_();
  }
  return absl::OkStatus();
}

absl::Status Engine::ReduceMetrics(MetricSet& metrics, double& extra) {
  if (collective_ == nullptr) return absl::OkStatus();
  std::vector<double> sums = {extra}, maxima;
  for (const Metric& metric : metrics.metrics()) {
    switch (metric.reduction) {
      case Reduction::kSum:
        sums.push_back(metric.value);
        break;
      case Reduction::kMax:
        maxima.push_back(metric.value);
        break;
      case Reduction::kMin:
        maxima.push_back(-metric.value);
        break;
    }
  }
  MANTA_RETURN_IF_ERROR(collective_->AllReduceSum(absl::MakeSpan(sums)));
  if (!maxima.empty()) MANTA_RETURN_IF_ERROR(collective_->AllReduceMax(absl::MakeSpan(maxima)));
  size_t next_sum = 1, next_maximum = 0;
  extra = sums[0];
  for (Metric& metric : metrics.metrics()) {
    switch (metric.reduction) {
      case Reduction::kSum:
        metric.value = sums[next_sum++];
        break;
      case Reduction::kMax:
        metric.value = maxima[next_maximum++];
        break;
      case Reduction::kMin:
        metric.value = -maxima[next_maximum++];
        break;
    }
  }
  return absl::OkStatus();
}

void Engine::Report(const Loss& loss, const MetricSet& metrics, v1::TrainReply* reply) const {
  auto& out = *reply->mutable_metrics();
  for (const Metric& metric : metrics.metrics()) out[metric.name] = MetricSet::Logged(metric);
  out["global_valid_toks"] = loss.global_valid_toks;
  out["global_valid_seqs"] = loss.global_valid_seqs;
  reply->set_step(state_.step);
}

absl::Status Engine::Train(const v1::TrainRequest& request, v1::TrainReply* reply) {
  const Stopwatch watch;
  MANTA_ASSIGN_OR_RETURN(const std::vector<BatchView> microbatches, ViewMicrobatches(request.batch()));
  MANTA_ASSIGN_OR_RETURN(const Loss loss, ParseLoss(request, microbatches));
  parameters_.ZeroGradients();
  MetricSet metrics;
  MANTA_RETURN_IF_ERROR(RunMicrobatches(loss, microbatches, metrics));
  MANTA_RETURN_IF_ERROR(optimizer_->ReduceGradients());
  double squared_norm = optimizer_->LocalSquaredNorm();
  MANTA_RETURN_IF_ERROR(ReduceMetrics(metrics, squared_norm));
  const double norm = std::sqrt(squared_norm);
  if (!std::isfinite(norm)) {
    return absl::OutOfRangeError(absl::StrCat("the gradient's norm is ", norm, " at optimiser step ", state_.step + 1,
                                              " (loss ", metrics.Get("loss"), "); the weights are unchanged"));
  }
  const v1::OptimizerConfig& optimizer = config_.optimizer();
  AdamWOptions options;
  options.lr = schedule_.At(state_.schedule_step);
  options.weight_decay = optimizer.weight_decay();
  options.beta1 = optimizer.beta1();
  options.beta2 = optimizer.beta2();
  options.eps = optimizer.eps();
  if (lender_ != nullptr) {
    // Without a copy on the host a reader that comes late has to wait for the next version: no reason to stop training.
    if (const absl::Status kept = lender_->BeginChange(); !kept.ok()) {
      LogWarning(absl::StrCat("the version before is not kept for late readers: ", kept.message()));
    }
  }
  MANTA_RETURN_IF_ERROR(optimizer_->Step(options, state_.step + 1, ClipScale(norm, optimizer.max_grad_norm())));
  ++state_.step;
  if (request.advance_schedule()) ++state_.schedule_step;
  Report(loss, metrics, reply);
  reply->set_grad_norm(norm);
  reply->set_lr(options.lr);
  reply->set_seconds(watch.seconds());
  return absl::OkStatus();
}

absl::Status Engine::Evaluate(const v1::TrainRequest& request, v1::TrainReply* reply) {
  const Stopwatch watch;
  const c10::NoGradGuard no_grad;
  MANTA_ASSIGN_OR_RETURN(const std::vector<BatchView> microbatches, ViewMicrobatches(request.batch()));
  MANTA_ASSIGN_OR_RETURN(const Loss loss, ParseLoss(request, microbatches));
  MetricSet metrics;
  MANTA_RETURN_IF_ERROR(RunMicrobatches(loss, microbatches, metrics));
  double nothing = 0;
  MANTA_RETURN_IF_ERROR(ReduceMetrics(metrics, nothing));
  Report(loss, metrics, reply);
  reply->set_lr(schedule_.At(state_.schedule_step));
  reply->set_seconds(watch.seconds());
  return absl::OkStatus();
}

absl::Status Engine::ComputeLogprobs(const v1::LogprobRequest& request, v1::LogprobReply* reply) {
  const c10::NoGradGuard no_grad;
  if (request.reference() && !reference_) {
    return absl::FailedPreconditionError(
        "reference log-probabilities need keep_reference when the trainer is configured");
  }
  const model::Parameters& parameters = request.reference() ? *reference_ : parameters_;
  MANTA_ASSIGN_OR_RETURN(const std::vector<BatchView> microbatches, ViewMicrobatches(request.batch()));
  MANTA_ASSIGN_OR_RETURN(const ScoreOptions options, Score(request.temperature(), request.top_k(), request.top_p(),
                                                           config_.logprob_chunk_tokens()));
  const size_t total = request.batch().tokens().size() / sizeof(int32_t);
  std::vector<float> logprobs(total, 0.0f);
  for (const BatchView& batch : microbatches) {
    MANTA_ASSIGN_OR_RETURN(const ScoredRows scored,
                           ScoredRows::Compute(parameters, batch.lengths, batch.tokens, batch.token_mask, options));
    scored.CopyTo(std::span(logprobs).subspan(batch.first_token, batch.tokens.size()));
    on_work_();
  }
  reply->set_logprobs(logprobs.data(), logprobs.size() * sizeof(float));
  return absl::OkStatus();
}

}  // namespace manta::train
