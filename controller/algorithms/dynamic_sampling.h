// Dynamic sampling (DAPO, arXiv 2503.14476): of the prompts that were sampled, a step trains on those whose answers got
// different rewards, and draws further generation batches until it has enough of them.
//
// A prompt is kept or dropped whole. Rewards are those before shaping; samples that failed have no say, and stay with
// their prompt, masked. Owned by one step; not thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/config/run_config.h"
#include "controller/rollout/rollout_metrics.h"
#include "controller/rollout/sample.h"

namespace manta::controller {

class DynamicSampling {
 public:
  explicit DynamicSampling(const config::GrpoConfig& config) : config_(config) {}

  // The samples of one generation batch, whose groups count from 0.
  void Add(std::vector<Sample> samples);

  int64_t num_batches() const { return num_batches_; }
  int64_t num_kept() const { return num_kept_; }  // prompts
  bool complete() const { return num_kept_ >= config_.num_prompts_per_step; }
  // FAILED_PRECONDITION where no further batch may be drawn and the step is not complete.
  absl::Status CheckLimit() const;

  // The samples of the first num_prompts_per_step prompts that were kept, their groups counted anew. Once, when complete.
  std::vector<Sample> Take();

  // Names without prefix: how many batches it took, what was too much, and RolloutMetrics of everything that was generated
  // (what was kept has the mean filtered_reward).
  std::map<std::string, double> Metrics() const;

 private:
  const config::GrpoConfig& config_;
  int64_t num_batches_ = 0, num_prompts_ = 0, num_kept_ = 0, num_discarded_ = 0;
  std::vector<Sample> kept_;
  RolloutStats all_, used_;
};

}  // namespace manta::controller
