#include "controller/cli/terminal.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/status.h"
#include "common/metrics/summary.h"

namespace manta::cli {

int PrintError(const absl::Status& status) {
  if (status.ok()) return 0;
  std::fprintf(stderr, "manta: error: %s\n", std::string(status.message()).c_str());
  const v1::ErrorInfo info = GetErrorInfo(status);
  if (info.last_lines_size() > 0) {
    std::fprintf(stderr, "last lines of %s:\n", info.actor().empty() ? "its log" : info.actor().c_str());
    for (const std::string& line : info.last_lines()) std::fprintf(stderr, "  | %s\n", line.c_str());
  }
  return ExitCode(status);
}

void PrintWarning(const std::string& text) { std::fprintf(stderr, "manta: warning: %s\n", text.c_str()); }

void PrintDeath(const absl::Status& death, const std::string& then) {
  PrintWarning(absl::StrCat(std::string(death.message()), ": ", then));
  const v1::ErrorInfo info = GetErrorInfo(death);
  for (int i = std::max(0, info.last_lines_size() - 3); i < info.last_lines_size(); ++i) {
    std::fprintf(stderr, "  | %s\n", info.last_lines(i).c_str());
  }
}

ProgressView::ProgressView() : terminal_(isatty(STDOUT_FILENO) == 1) {}

void ProgressView::Show(const v1::RunEvent& event) {
  switch (event.event_case()) {
    case v1::RunEvent::kPhase:
      if (!terminal_) return;
      Clear();
      std::printf("  %s", event.phase().name().c_str());
      if (event.phase().fraction() >= 0) std::printf(" %.0f%%", 100 * event.phase().fraction());
      passing_ = true;
      break;
    case v1::RunEvent::kStep: {
      Clear();
      const v1::RunStep& step = event.step();
      const std::map<std::string, double> metrics(step.metrics().begin(), step.metrics().end());
      std::printf("%s\n", metrics::ProgressLine(step.step(), step.num_steps(), step.seconds_left(), metrics).c_str());
      break;
    }
    case v1::RunEvent::kText:
      Clear();
      if (event.text().warning()) {
        std::fflush(stdout);
        PrintWarning(event.text().text());
      } else {
        std::printf("%s\n", event.text().text().c_str());
      }
      break;
    default: break;
  }
  std::fflush(stdout);
}

void ProgressView::Clear() {
  if (passing_) std::printf("\r\033[K");
  passing_ = false;
}

}  // namespace manta::cli
