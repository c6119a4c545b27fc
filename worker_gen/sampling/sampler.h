// Draws a token from a row of logits.
//
// The order of operations: banned tokens are removed, logits are divided by the temperature, then top-k (ties with the
// k-th are kept), top-p over what top-k kept (the smallest set of the most probable tokens whose probability reaches
// p), and min-p (at least min_p times the largest probability) filter, and one uniform number picks from what is left.
// The number is draw `position` of the request's seed (Philox, common/base/random.h): a token depends on its seed and
// the tokens before it, on nothing else.
//
// A Sampler owns scratch memory: one a thread. What it returns does not depend on what it sampled before.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "worker_gen/sampling/sampling_options.h"
#include "worker_gen/sampling/weights.h"

namespace manta::gen {

struct SampledToken {
  int32_t token = 0;
  float logprob = 0;      // under the distribution that it was drawn from; 0 where greedy: that has one outcome
  float raw_logprob = 0;  // under softmax(logits)
};

class Sampler {
 public:
  static constexpr uint64_t kStream = 0;  // of the request's seed, that tokens are drawn with

  // `logits` [vocabulary]; `position`: how many tokens the request has drawn before; `banned`: tokens that may not be
  // drawn (ids outside of the vocabulary are ignored). INTERNAL where a logit is NaN, all are -inf, or none is left.
  absl::StatusOr<SampledToken> Sample(absl::Span<const float> logits, const SamplingOptions& options, int64_t position,
                                      absl::Span<const int32_t> banned);

 private:
  struct Candidate {
    int32_t token;
    float logit;  // what ranks it: unequal logits may have equal weights
    float weight;
  };
  int32_t DrawFromAll(double uniform, absl::Span<const float> logits) const;
  // Leaves in candidates_ what the filters keep and returns the sum of their weights.
  double Filter(const SamplingOptions& options, absl::Span<const float> logits);

  RowWeights raw_, tempered_;
  std::vector<float> allowed_;  // logits without the banned ones
  std::vector<Candidate> candidates_;
};

}  // namespace manta::gen
