// Named numbers that a loss reports, with how partial values of microbatches and ranks become one.
//
// Losses report partial sums, already divided by global counts, so that adding is all that combines them; extremes
// combine by minimum and maximum. Values, not thread-safe.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

namespace manta::train {

enum class Reduction { kSum, kMin, kMax };

struct Metric {
  const char* name;  // a literal
  Reduction reduction;
  double value;
};

class MetricSet {
 public:
  void Sum(const char* name, double value) { metrics_.push_back({name, Reduction::kSum, value}); }
  void Min(const char* name, double value) { metrics_.push_back({name, Reduction::kMin, value}); }
  void Max(const char* name, double value) { metrics_.push_back({name, Reduction::kMax, value}); }

  // Adds another microbatch's or rank's values. Both sets hold the same names in the same order, or this one is empty.
  void Merge(const MetricSet& other) {
    if (metrics_.empty()) {
      metrics_ = other.metrics_;
      return;
    }
    for (size_t i = 0; i < metrics_.size(); ++i) Combine(metrics_[i], other.metrics_[i].value);
  }

  static void Combine(Metric& into, double value) {
    switch (into.reduction) {
      case Reduction::kSum:
        into.value += value;
        break;
      case Reduction::kMin:
        into.value = std::min(into.value, value);
        break;
      case Reduction::kMax:
        into.value = std::max(into.value, value);
        break;
    }
  }

  // What is logged: an extreme over no tokens at all is -1.
  static double Logged(const Metric& metric) {
    return metric.reduction != Reduction::kSum && std::isinf(metric.value) ? -1.0 : metric.value;
  }

  const std::vector<Metric>& metrics() const { return metrics_; }
  std::vector<Metric>& metrics() { return metrics_; }
  // NaN where there is none of that name.
  double Get(const std::string& name) const {
    for (const Metric& metric : metrics_) {
      if (name == metric.name) return metric.value;
    }
    return std::numeric_limits<double>::quiet_NaN();
  }

 private:
  std::vector<Metric> metrics_;
};

}  // namespace manta::train
