#include "common/metrics/summary.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/metrics/names.h"
#include "common/metrics/plot.h"

namespace manta::metrics {
namespace {

struct Column {
  std::string_view metric;
  const char* title;
  int digits;  // after the point; negative: of a power of ten's mantissa
};
constexpr Column kColumns[] = {
    {kReward, "reward", 3},    {kLoss, "loss", 4},          {kAccuracy, "val accuracy", 3},
    {kValLoss, "val loss", 4}, {kGradNorm, "grad norm", 3}, {kLr, "lr", -2},
    {kStepTime, "seconds", 2},
};

const double* Value(const std::map<std::string, double>& values, std::string_view name) {
  auto it = values.find(std::string(name));
  return it == values.end() ? nullptr : &it->second;
}

std::string Cell(const StepRecord& record, const Column& column) {
  const double* value = Value(record.values, column.metric);
  if (value == nullptr) return "";
  return column.digits < 0 ? absl::StrFormat("%.*e", -column.digits, *value) : absl::StrFormat("%.*f", column.digits, *value);
}

Series Collect(const std::vector<StepRecord>& history, std::string_view metric, const char* name, bool markers) {
  Series series{name, {}, markers};
  for (const StepRecord& record : history) {
    if (const double* value = Value(record.values, metric)) series.points.emplace_back(record.step, *value);
  }
  return series;
}

bool Validated(const StepRecord& record) {
  return Value(record.values, kAccuracy) != nullptr || Value(record.values, kValLoss) != nullptr;
}

// Rows evenly spaced from the first to the last, each moved to the nearest validation where one is nearer than the
// neighbours: a table without its validations would say little.
std::vector<size_t> ChooseRows(const std::vector<StepRecord>& history, size_t most) {
  const size_t n = history.size(), wanted = std::min(n, most);
  std::vector<size_t> rows;
  for (size_t i = 0; i < wanted; ++i) {
    const size_t even = wanted == 1 ? 0 : i * (n - 1) / (wanted - 1);
    const size_t reach = wanted == 1 ? 0 : (n - 1) / (wanted - 1) / 2;
    size_t row = even;
    for (size_t d = 0; d <= reach && i > 0 && i + 1 < wanted; ++d) {
      if (even >= d && Validated(history[even - d])) row = even - d;
      if (even + d < n && Validated(history[even + d])) row = even + d;
      if (Validated(history[row])) break;
    }
    if (rows.empty() || row > rows.back()) rows.push_back(row);
  }
  return rows;
}

}  // namespace

std::string FormatDuration(double seconds) {
  if (!(seconds >= 0) || seconds > 1e9) return "?";
  const auto total = static_cast<int64_t>(std::llround(seconds));
  if (total < 60) return absl::StrCat(total, " s");
  if (total < 3600) return absl::StrFormat("%d:%02d", total / 60, total % 60);
  if (total < 86400) return absl::StrFormat("%d:%02d:%02d", total / 3600, total / 60 % 60, total % 60);
  return absl::StrCat(total / 86400, " days ", total / 3600 % 24, " h");
}

std::string ProgressLine(int64_t step, int64_t num_steps, double seconds_left, const std::map<std::string, double>& values) {
  std::string line = num_steps > 0 ? absl::StrCat("step ", step, "/", num_steps) : absl::StrCat("step ", step);
  const auto add = [&](std::string_view name, const char* label, int digits) {
    if (const double* value = Value(values, name)) absl::StrAppendFormat(&line, "  %s %.*f", label, digits, *value);
  };
  add(kLoss, "loss", 4);
  add(kReward, "reward", 3);
  add(kAccuracy, "val accuracy", 3);
  add(kValLoss, "val loss", 4);
  if (const double* seconds = Value(values, kStepTime)) absl::StrAppendFormat(&line, "  %.2f s/step", *seconds);
  if (seconds_left >= 0) absl::StrAppend(&line, "  ", FormatDuration(seconds_left), " left");
  return line;
}

std::string HistoryTable(const std::vector<StepRecord>& history, int max_rows) {
  if (history.empty()) return "no step was completed\n";
  const std::vector<size_t> rows = ChooseRows(history, static_cast<size_t>(std::max(2, max_rows)));
  std::vector<std::vector<std::string>> table{{"step"}};
  for (size_t row : rows) table.push_back({absl::StrCat(history[row].step)});
  for (const Column& column : kColumns) {
    bool any = false;
    for (size_t row : rows) any = any || Value(history[row].values, column.metric) != nullptr;
    if (!any) continue;
    table[0].emplace_back(column.title);
    for (size_t i = 0; i < rows.size(); ++i) table[i + 1].push_back(Cell(history[rows[i]], column));
  }
  std::vector<size_t> widths(table[0].size());
  for (const auto& row : table) {
    for (size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], row[c].size());
  }
  std::string out;
  for (size_t r = 0; r < table.size(); ++r) {
    for (size_t c = 0; c < table[r].size(); ++c) {
      absl::StrAppendFormat(&out, "%s%*s", c > 0 ? "  " : "", static_cast<int>(widths[c]), table[r][c]);
    }
    out += "\n";
    if (r > 0) continue;
    for (size_t c = 0; c < widths.size(); ++c) absl::StrAppend(&out, c > 0 ? "  " : "", std::string(widths[c], '-'));
    out += "\n";
  }
  return out;
}

std::string PlotHistory(std::string_view title, const std::vector<StepRecord>& history) {
  std::vector<Panel> panels;
  const auto add = [&](const char* name, std::vector<Series> series) {
    Panel panel{name, {}};
    for (Series& s : series) {
      if (!s.points.empty()) panel.series.push_back(std::move(s));
    }
    if (!panel.series.empty()) panels.push_back(std::move(panel));
  };
  add("Reward", {Collect(history, kReward, "train reward", false), Collect(history, kAccuracy, "validation accuracy", true)});
  add("Loss", {Collect(history, kLoss, "train loss", false), Collect(history, kValLoss, "validation loss", true)});
  if (panels.empty()) panels.push_back({"Loss", {}});
  return PlotSvg(title, "step", panels);
}

}  // namespace manta::metrics
