#include "tests/bench/actor/report.h"

#include <cstdio>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace manta::bench {

Report::Report(bool json) : json_(json) {
  if (!json_) std::printf("%-32s %13s %12s %13s %7s  %s\n", "", "figure", "asked for", "raw gRPC", "ratio", "");
}

void Report::Add(const Figure& figure) {
  values_[figure.key] = figure.value;
  const double ratio = figure.ratio > 0 ? figure.ratio : figure.raw > 0 ? figure.value / figure.raw : 0;
  if (figure.raw > 0) {
    values_[figure.raw_key] = figure.raw;
    values_[figure.key + "_over_raw"] = ratio;
  }
  if (json_) return;
  const std::string limit =
      figure.limit > 0 ? absl::StrFormat("%s %.6g", figure.at_most ? "<=" : ">=", figure.limit) : "";
  const std::string raw = figure.raw > 0 ? absl::StrFormat("%.2f", figure.raw) : "";
  std::string note = figure.note;
  if (figure.raw_limit > 0) note = absl::StrCat("ratio >= ", figure.raw_limit, note.empty() ? "" : "; ", note);
  std::printf("%-32s %13.2f %12s %13s %7s  %s\n", figure.key.c_str(), figure.value, limit.c_str(), raw.c_str(),
              figure.raw > 0 ? absl::StrFormat("%.2f", ratio).c_str() : "", note.c_str());
  std::fflush(stdout);
}

void Report::Print() {
  if (json_) std::printf("%s\n", values_.dump(2).c_str());
}

}  // namespace manta::bench
