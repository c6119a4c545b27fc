// What a run records about itself, in its folder: metrics.jsonl, TensorBoard events under tb/, and at the end plot.svg
// and a table.
//
// metrics.jsonl has one object a step: step, time (Unix seconds), weight_version, then flat metric names (names.h); each
// line is flushed as it is written, and non-finite numbers are the strings "NaN", "Infinity" and "-Infinity". A resumed
// run has the lines of the run before it, but for those after the step that it goes on from; TensorBoard is given the
// same. Not thread-safe: one thread (the controller's loop) owns it.
// Failures (a full disk) are statuses; the files then hold the steps written so far.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace manta::metrics {

class EventFile;

// One line of metrics.jsonl, read back.
struct StepRecord {
  int64_t step = 0;
  double time = 0;
  uint64_t weight_version = 0;
  std::map<std::string, double> values;
};

struct RunLoggerOptions {
  std::filesystem::path run_dir;         // exists
  bool tensorboard = false;
  // Where a run goes on from: the step that it restored, as far as its values are known. Lines up to and with that step
  // are taken over from metrics.jsonl in `earlier_run` (or in run_dir, where that is empty), and the step itself is added
  // where it has no line there. Unset: start anew.
  std::optional<StepRecord> restored;
  std::filesystem::path earlier_run;
};

class RunLogger {
 public:
  [[nodiscard]] static absl::StatusOr<std::unique_ptr<RunLogger>> Open(const RunLoggerOptions& options);
  ~RunLogger();

  // Appends a step's line and events. A second call for the same step merges into one history entry (a validation
  // before training begins, say) but is a line of its own.
  [[nodiscard]] absl::Status Log(int64_t step, uint64_t weight_version, const std::map<std::string, double>& values);

  // Everything logged, with the kept lines of a resumed run, oldest first; one entry a step.
  const std::vector<StepRecord>& history() const { return history_; }

  // Writes plot.svg (reward, loss and validation over steps: what of them there is).
  [[nodiscard]] absl::Status WritePlot(std::string_view title) const;

  // A table for people: the first, middle and last steps with the metrics that matter.
  std::string EndTable() const;

 private:
  RunLogger();
  // Fills history_; the lines to begin with.
  absl::StatusOr<std::string> TakeOver(const std::filesystem::path& earlier_run, const StepRecord& restored);

  std::filesystem::path run_dir_;
  int fd_ = -1;
  std::unique_ptr<EventFile> events_;
  std::vector<StepRecord> history_;
};

// Reads metrics.jsonl. INVALID_ARGUMENT with file:line for a broken line, except a torn last one, which is left out.
[[nodiscard]] absl::StatusOr<std::vector<StepRecord>> ReadMetrics(const std::filesystem::path& path);

}  // namespace manta::metrics
