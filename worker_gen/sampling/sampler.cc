#include "worker_gen/sampling/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/random.h"

namespace manta::gen {
namespace {

// The first token with the largest logit.
int32_t ArgMax(absl::Span<const float> logits, float max) {
  return static_cast<int32_t>(std::find(logits.begin(), logits.end(), max) - logits.begin());
}

}  // namespace

absl::StatusOr<SampledToken> Sampler::Sample(absl::Span<const float> logits, const SamplingOptions& options,
                                             int64_t position, absl::Span<const int32_t> banned) {
  const float raw_max = RowMax(logits);
  if (!std::isfinite(raw_max))
    return absl::InternalError(
        absl::StrCat("the model's logits at new token ", position, " have a maximum of ", raw_max));
  ComputeWeights(logits, raw_max, 1.0f, raw_);
  const double raw_log_total = std::log(raw_.total);

  float max = raw_max;
  absl::Span<const float> allowed = logits;
  if (!banned.empty()) {
    allowed_.assign(logits.begin(), logits.end());
    for (int32_t token : banned) {
      if (token >= 0 && token < static_cast<int32_t>(allowed_.size()))
        allowed_[token] = -std::numeric_limits<float>::infinity();
    }
    allowed = allowed_;
    max = RowMax(allowed);
    if (!std::isfinite(max))
      return absl::InternalError(absl::StrCat("no token is left to draw at new token ", position, ": all are banned"));
  }

  SampledToken sampled;
  auto raw_logprob = [&](int32_t token) {
    return static_cast<float>(static_cast<double>(logits[token]) - raw_max - raw_log_total);
  };
  if (options.greedy()) {
    sampled.token = ArgMax(allowed, max);
    sampled.raw_logprob = raw_logprob(sampled.token);
    return sampled;
  }

  const float scale = static_cast<float>(1.0 / options.temperature);
  if (scale == 1.0f && banned.empty()) {
    std::swap(raw_, tempered_);
  } else {
    ComputeWeights(allowed, max, scale, tempered_);
  }
  const double uniform = UniformAt(options.seed, kStream, static_cast<uint64_t>(position));
  double total = tempered_.total;
  if (options.filters()) {
    total = Filter(options, allowed);
    const double target = uniform * total;
    double sum = 0;
    sampled.token = candidates_.back().token;  // where rounding lets the sum stay below the target
    for (const Candidate& candidate : candidates_) {
      sum += candidate.weight;
      if (sum > target) {
        sampled.token = candidate.token;
        break;
      }
    }
  } else {
    sampled.token = DrawFromAll(uniform, allowed);
  }
  sampled.logprob =
      static_cast<float>((static_cast<double>(logits[sampled.token]) - max) / options.temperature - std::log(total));
  sampled.raw_logprob = raw_logprob(sampled.token);
  return sampled;
}

int32_t Sampler::DrawFromAll(double uniform, absl::Span<const float> logits) const {
  const double target = uniform * tempered_.total;
  double sum = 0;
  size_t block = 0, last_block = 0;
  for (; block < tempered_.block_sums.size(); ++block) {
    if (tempered_.block_sums[block] > 0) last_block = block;
    if (sum + tempered_.block_sums[block] > target) break;
    sum += tempered_.block_sums[block];
  }
  if (block == tempered_.block_sums.size()) block = last_block;
  // Within the block. Where rounding lets the sum stay below the target, the last token with any weight is taken.
  int32_t token = -1;
  const size_t end = std::min((block + 1) * kWeightBlock, logits.size());
  for (size_t i = block * kWeightBlock; i < end; ++i) {
    if (tempered_.weights[i] <= 0) continue;
    token = static_cast<int32_t>(i);
    sum += tempered_.weights[i];
    if (sum > target) break;
  }
  MANTA_CHECK(token >= 0) << "the largest logit has weight 1";
  return token;
}

double Sampler::Filter(const SamplingOptions& options, absl::Span<const float> logits) {
  candidates_.clear();
  for (size_t i = 0; i < logits.size(); ++i) {
    if (tempered_.weights[i] > 0) candidates_.push_back({static_cast<int32_t>(i), logits[i], tempered_.weights[i]});
  }
  // A strict order: equal logits go by token, so that the result does not hang on the sort's whims.
  auto before = [](const Candidate& a, const Candidate& b) {
    return a.logit > b.logit || (a.logit == b.logit && a.token < b.token);
  };
  if (options.top_k > 0 && static_cast<size_t>(options.top_k) < candidates_.size()) {
    const auto kth = candidates_.begin() + (options.top_k - 1);
    std::nth_element(candidates_.begin(), kth, candidates_.end(), before);
    const float least = kth->logit;
    candidates_.erase(std::remove_if(kth, candidates_.end(), [&](const Candidate& c) { return c.logit < least; }),
                      candidates_.end());
  }
  double kept = 0;
  if (options.top_p < 1.0) {
    double total = 0;
    std::sort(candidates_.begin(), candidates_.end(), before);
    for (const Candidate& candidate : candidates_) total += candidate.weight;
    size_t count = 0;
    while (count < candidates_.size() && (count == 0 || kept < options.top_p * total))
      kept += candidates_[count++].weight;
    candidates_.resize(count);
  }
  if (options.min_p > 0.0) {  // the largest weight is 1
    candidates_.erase(std::remove_if(candidates_.begin(), candidates_.end(),
                                     [&](const Candidate& c) { return c.weight < options.min_p; }),
                      candidates_.end());
  }
  std::sort(candidates_.begin(), candidates_.end(),
            [](const Candidate& a, const Candidate& b) { return a.token < b.token; });
  kept = 0;
  for (const Candidate& candidate : candidates_) kept += candidate.weight;
  return kept;
}

}  // namespace manta::gen
