// The names under which metrics are logged, in one table: what a plot, a table and a progress line look for, and what
// each is. Names are those that people who train language models already have on their dashboards.
#pragma once

#include <span>
#include <string_view>

namespace manta::metrics {

inline constexpr std::string_view kLoss = "train/loss";
inline constexpr std::string_view kReward = "train/reward";
inline constexpr std::string_view kGradNorm = "train/grad_norm";
inline constexpr std::string_view kLr = "train/lr";
inline constexpr std::string_view kStepTime = "timing/train/total_step_time";
inline constexpr std::string_view kAccuracy = "validation/accuracy";
inline constexpr std::string_view kValLoss = "validation/val_loss";

struct MetricName {
  std::string_view name;  // a last part "*" is anything below
  std::string_view what;
};

// Sorted by group: train/, timing/train/, performance/, validation/.
std::span<const MetricName> AllMetricNames();

// Whether the table has `name`.
bool IsKnownMetric(std::string_view name);

}  // namespace manta::metrics
