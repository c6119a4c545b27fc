// The decisions that every training loop takes between steps: whether it is time to validate or to save, how long is
// left. Pure, but for StepTimer's clock.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/config/run_config.h"

namespace manta::controller {

// After step `step` of `num_steps` (1-based).
bool ValidateAfter(int64_t step, int64_t num_steps, int64_t val_period, int64_t val_start_at, bool val_at_end);
bool SaveAfter(int64_t step, int64_t num_steps, const config::CheckpointingConfig& config);

// The value of checkpointing.metric_name ("val:accuracy", "train:loss") among logged metrics ("validation/accuracy",
// "train/loss"); empty where it was not measured.
std::optional<double> CheckpointMetric(const config::CheckpointingConfig& config,
                                       const std::map<std::string, double>& logged);

// Ends a run once a measure of a validation is good enough; without `metric`, never.
struct StopRule {
  std::optional<std::string> metric;  // as "accuracy"
  double threshold = 0;

  // What to say of it where the logged metrics ("validation/accuracy") reach it; else empty.
  std::string Reached(const std::map<std::string, double>& logged) const;
};

// What to say of a run that was resumed after its last step.
std::string NothingLeft(int64_t step, int64_t num_steps);

// Seconds left, from the median of the last steps: one slow step (a validation, a save) does not frighten anybody.
class StepTimer {
 public:
  void Begin(absl::Time begin = absl::Now()) { begin_ = begin; }
  absl::Time begin() const { return begin_; }
  double End();  // seconds of the step
  double SecondsLeft(int64_t steps_left) const;

 private:
  absl::Time begin_;
  std::deque<double> recent_;
};

// Seconds that named phases of a step took: timing/train/<name>.
class PhaseTimes {
 public:
  // Ends the phase before and begins `name`; an empty name only ends.
  void Begin(std::string name);
  const std::map<std::string, double>& seconds() const { return seconds_; }

 private:
  std::string name_;
  absl::Time begin_;
  std::map<std::string, double> seconds_;
};

}  // namespace manta::controller
