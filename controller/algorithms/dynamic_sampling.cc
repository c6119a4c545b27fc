#include "controller/algorithms/dynamic_sampling.h"

#include <unordered_set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "controller/algorithms/grpo_batch.h"
#include "controller/algorithms/reward_shaping.h"

namespace manta::controller {
namespace {

// The groups whose samples, as far as they did not fail, have different rewards.
std::unordered_set<int64_t> InformativeGroups(std::span<const Sample> samples, const config::GrpoConfig& config) {
  const std::vector<double> scaled = ScaledRewards(samples, config);
  std::vector<int64_t> groups;
  std::vector<double> rewards;
  for (size_t i = 0; i < samples.size(); ++i) {
    if (!samples[i].status.ok()) continue;
    groups.push_back(samples[i].group);
    rewards.push_back(scaled[i]);
  }
  std::unordered_set<int64_t> informative;
  for (size_t row : SelectInformativeRows(groups, rewards)) informative.insert(groups[row]);
  return informative;
}

}  // namespace

void DynamicSampling::Add(std::vector<Sample> samples) {
  ++num_batches_;
  all_.Add(samples);
  const std::unordered_set<int64_t> informative = InformativeGroups(samples, config_);
  std::map<int64_t, int64_t> number;  // of a group of this batch: its place among those that are kept
  std::unordered_set<int64_t> seen;
  for (Sample& sample : samples) {
    seen.insert(sample.group);
    if (!informative.contains(sample.group)) continue;
    const auto [it, first] = number.try_emplace(sample.group, num_kept_);
    num_kept_ += first ? 1 : 0;
    sample.group = static_cast<int32_t>(it->second);
    kept_.push_back(std::move(sample));
  }
  num_prompts_ += static_cast<int64_t>(seen.size());
}

absl::Status DynamicSampling::CheckLimit() const {
  if (complete() || num_batches_ < config_.dynamic_sampling_max_gen_batches) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "grpo.use_dynamic_sampling: after ", num_batches_, " generation batches (dynamic_sampling_max_gen_batches) only ",
      num_kept_, " of ", num_prompts_, " prompts have answers with different rewards, and a step needs ",
      config_.num_prompts_per_step,
      " (num_prompts_per_step): the problems are too hard or too easy for the model, or more batches are needed"));
}

std::vector<Sample> DynamicSampling::Take() {
  MANTA_CHECK(complete());
  std::vector<Sample> used;
  for (Sample& sample : kept_) {
    if (sample.group < config_.num_prompts_per_step) {
      used.push_back(std::move(sample));
    } else {
      num_discarded_ += sample.status.ok() ? 1 : 0;
    }
  }
  kept_.clear();
  used_.Add(used);
  return used;
}

std::map<std::string, double> DynamicSampling::Metrics() const {
  std::map<std::string, double> metrics = all_.Metrics();
  metrics.erase("total_num_tokens");  // of what is trained on
  const std::map<std::string, double> used = used_.Metrics();
  if (const auto reward = used.find("reward"); reward != used.end()) metrics["filtered_reward"] = reward->second;
  metrics["dynamic_sampling_num_gen_batches"] = static_cast<double>(num_batches_);
  metrics["dynamic_sampling_num_discarded_valid_samples"] = static_cast<double>(num_discarded_);
  return metrics;
}

}  // namespace manta::controller
