#include "controller/algorithms/loop_control.h"

#include <algorithm>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace manta::controller {

bool ValidateAfter(int64_t step, int64_t num_steps, int64_t val_period, int64_t val_start_at, bool val_at_end) {
  if (val_at_end && step == num_steps) return true;
  return val_period > 0 && step >= val_start_at && step % val_period == 0;
}

bool SaveAfter(int64_t step, int64_t num_steps, const config::CheckpointingConfig& config) {
  return config.enabled && (step == num_steps || (config.save_period > 0 && step % config.save_period == 0));
}

std::optional<double> CheckpointMetric(const config::CheckpointingConfig& config,
                                       const std::map<std::string, double>& logged) {
  if (!config.metric_name) return std::nullopt;
  absl::string_view name = *config.metric_name;
  std::string full;
  if (absl::ConsumePrefix(&name, "val:")) {
    full = absl::StrCat("validation/", name);
  } else {
    absl::ConsumePrefix(&name, "train:");
    full = absl::StrCat("train/", name);
  }
  const auto it = logged.find(full);
  if (it == logged.end()) return std::nullopt;
  return it->second;
}

std::string StopRule::Reached(const std::map<std::string, double>& logged) const {
  if (!metric) return "";
  const auto it = logged.find(absl::StrCat("validation/", *metric));
  if (it == logged.end() || it->second < threshold) return "";
  return absl::StrCat("validation's ", *metric, " of ", it->second, " reached grpo.stop_at_validation_threshold (",
                      threshold, ")");
}

std::string NothingLeft(int64_t step, int64_t num_steps) {
  return absl::StrCat("nothing is left to do: the checkpoint is of step ", step, " and the run has ", num_steps,
                      " steps; to start anew, set checkpointing.checkpoint_dir to another folder");
}

double StepTimer::End() {
  const double seconds = absl::ToDoubleSeconds(absl::Now() - begin_);
  recent_.push_back(seconds);
  if (recent_.size() > 31) recent_.pop_front();
  return seconds;
}

double StepTimer::SecondsLeft(int64_t steps_left) const {
  if (recent_.empty()) return 0;
  std::vector<double> sorted(recent_.begin(), recent_.end());
  std::nth_element(sorted.begin(), sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2), sorted.end());
  return sorted[sorted.size() / 2] * static_cast<double>(steps_left);
}

void PhaseTimes::Begin(std::string name) {
  const absl::Time now = absl::Now();
  if (!name_.empty()) seconds_[name_] += absl::ToDoubleSeconds(now - begin_);
  name_ = std::move(name);
  begin_ = now;
}

}  // namespace manta::controller
