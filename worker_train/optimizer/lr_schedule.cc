#include "worker_train/optimizer/lr_schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/base/status.h"

namespace manta::train {
namespace {

// Takes the arguments of one entry by name; whatever is left over was not known.
class Arguments {
 public:
  explicit Arguments(const v1::LrScheduleEntry& entry)
      : name_(entry.name()), values_(entry.kwargs().begin(), entry.kwargs().end()) {}

  double Take(const std::string& key, double otherwise) {
    const auto it = values_.find(key);
    if (it == values_.end()) return otherwise;
    const double value = it->second;
    values_.erase(it);
    return value;
  }
  bool Has(const std::string& key) const { return values_.contains(key); }
  absl::Status Error(absl::string_view what) const {
    return absl::InvalidArgumentError(absl::StrCat("policy.scheduler: ", name_, ": ", what));
  }
  absl::Status Finish(absl::string_view known) {
    Take("last_epoch", -1);  // part of every signature; the step comes from elsewhere
    if (values_.empty()) return absl::OkStatus();
    return Error(absl::StrCat("unknown argument '", values_.begin()->first, "'; known are ", known));
  }

 private:
  std::string name_;
  std::map<std::string, double> values_;
};

}  // namespace

absl::StatusOr<LrSchedule::Entry> LrSchedule::ParseEntry(const v1::LrScheduleEntry& config) {
  const absl::string_view full = config.name();
  const size_t dot = full.rfind('.');
  const absl::string_view name = dot == absl::string_view::npos ? full : full.substr(dot + 1);
  Arguments arguments(config);
  Entry entry{};
  if (name == "LinearLR") {
    entry.kind = Kind::kLinear;
    entry.a = arguments.Take("start_factor", 1.0 / 3);
    entry.b = arguments.Take("end_factor", 1.0);
    entry.c = arguments.Take("total_iters", 5);
    if (!(entry.a > 0 && entry.a <= 1)) return arguments.Error("start_factor must lie in (0, 1]");
    if (!(entry.b >= 0 && entry.b <= 1)) return arguments.Error("end_factor must lie in [0, 1]");
    if (!(entry.c >= 0)) return arguments.Error("total_iters must not be negative");
    MANTA_RETURN_IF_ERROR(arguments.Finish("start_factor, end_factor and total_iters"));
  } else if (name == "ConstantLR") {
    entry.kind = Kind::kConstant;
    entry.a = arguments.Take("factor", 1.0 / 3);
    entry.c = arguments.Take("total_iters", 5);
    if (!(entry.a >= 0 && entry.a <= 1)) return arguments.Error("factor must lie in [0, 1]");
    if (!(entry.c >= 0)) return arguments.Error("total_iters must not be negative");
    MANTA_RETURN_IF_ERROR(arguments.Finish("factor and total_iters"));
  } else if (name == "CosineAnnealingLR") {
    entry.kind = Kind::kCosine;
    if (!arguments.Has("T_max")) return arguments.Error("T_max is missing");
    entry.c = arguments.Take("T_max", 0);
    entry.a = arguments.Take("eta_min", 0);
    if (!(entry.c > 0)) return arguments.Error("T_max must be positive");
    MANTA_RETURN_IF_ERROR(arguments.Finish("T_max and eta_min"));
  } else {
    return absl::InvalidArgumentError(absl::StrCat(
        "policy.scheduler: '", std::string(full), "' is not known; known are LinearLR, ConstantLR, CosineAnnealingLR"));
  }
  return entry;
}

absl::StatusOr<LrSchedule> LrSchedule::Create(double base_lr, const v1::LrSchedule& config) {
  LrSchedule schedule;
  schedule.base_lr_ = base_lr;
  if (config.entries_size() > 0 && config.milestones_size() != config.entries_size() - 1) {
    return absl::InvalidArgumentError(absl::StrCat("policy.scheduler: ", config.entries_size(), " schedules need ",
                                                   config.entries_size() - 1, " milestones, not ",
                                                   config.milestones_size()));
  }
  for (int i = 0; i < config.entries_size(); ++i) {
    MANTA_ASSIGN_OR_RETURN(Entry entry, ParseEntry(config.entries(i)));
    entry.start = i == 0 ? 0 : config.milestones(i - 1);
    if (i > 0 && entry.start <= schedule.entries_.back().start) {
      return absl::InvalidArgumentError("policy.scheduler: milestones must be positive and ascend");
    }
    schedule.entries_.push_back(entry);
  }
  return schedule;
}

double LrSchedule::At(int64_t step) const {
  const Entry* entry = nullptr;
  for (const Entry& candidate : entries_) {
    if (step >= candidate.start) entry = &candidate;
  }
  if (entry == nullptr) return base_lr_;
  const double t = static_cast<double>(step - entry->start);
  switch (entry->kind) {
    case Kind::kLinear:
      return base_lr_ *
             (entry->c == 0 ? entry->b : entry->a + (entry->b - entry->a) * std::min(t, entry->c) / entry->c);
    case Kind::kConstant:
      return t < entry->c ? base_lr_ * entry->a : base_lr_;
    case Kind::kCosine:
      return entry->a + (base_lr_ - entry->a) * (1 + std::cos(std::numbers::pi * t / entry->c)) / 2;
  }
  return base_lr_;
}

}  // namespace manta::train
