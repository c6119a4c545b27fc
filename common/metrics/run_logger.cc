#include "common/metrics/run_logger.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <ctime>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/file.h"
#include "common/base/status.h"
#include "common/metrics/event_file.h"
#include "common/metrics/names.h"
#include "common/metrics/plot.h"
#include "common/metrics/summary.h"
#include "nlohmann/json.hpp"

namespace manta::metrics {
namespace {

using Json = nlohmann::ordered_json;

Json NumberOrText(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  return value;
}

std::optional<double> AsNumber(const Json& value) {
  if (value.is_number()) return value.get<double>();
  if (!value.is_string()) return std::nullopt;
  const auto& text = value.get_ref<const std::string&>();
  if (text == "NaN") return std::nan("");
  if (text == "Infinity") return HUGE_VAL;
  if (text == "-Infinity") return -HUGE_VAL;
  return std::nullopt;
}

std::optional<StepRecord> ParseLine(const std::string& line) {
  const Json json = Json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("step") || !json["step"].is_number_integer()) return std::nullopt;
  StepRecord record;
  for (const auto& [key, value] : json.items()) {
    const std::optional<double> number = AsNumber(value);
    if (key == "step") {
      record.step = value.get<int64_t>();
    } else if (key == "weight_version" && value.is_number_integer()) {
      record.weight_version = value.get<uint64_t>();
    } else if (key == "time") {
      record.time = number.value_or(0);
    } else if (number) {
      record.values[key] = *number;
    }
  }
  return record;
}

std::string LineOf(const StepRecord& record) {
  Json json;
  json["step"] = record.step;
  json["time"] = record.time;
  json["weight_version"] = record.weight_version;
  for (const auto& [name, value] : record.values) json[name] = NumberOrText(value);
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

struct Lines {
  std::vector<std::string> texts;
  std::vector<StepRecord> records;
};

absl::StatusOr<Lines> ReadLines(const std::filesystem::path& path) {
  MANTA_ASSIGN_OR_RETURN(const std::string content, ReadFile(path));
  Lines lines;
  size_t begin = 0;
  for (int number = 1; begin < content.size(); ++number) {
    const size_t end = content.find('\n', begin);
    const bool last = end == std::string::npos;
    std::string line = content.substr(begin, last ? end : end - begin);
    begin = last ? content.size() : end + 1;
    if (line.empty()) continue;
    std::optional<StepRecord> record = ParseLine(line);
    if (!record && last) break;  // the process died as it wrote
    if (!record) return UserError(absl::StrCat(path.string(), ":", number, ": not a JSON object with a step"));
    lines.texts.push_back(std::move(line));
    lines.records.push_back(*std::move(record));
  }
  return lines;
}

void AddToHistory(StepRecord record, std::vector<StepRecord>& history) {
  if (!history.empty() && history.back().step == record.step) {
    StepRecord& last = history.back();
    last.time = record.time;
    last.weight_version = record.weight_version;
    for (auto& [name, value] : record.values) last.values[name] = value;
    return;
  }
  history.push_back(std::move(record));
}

absl::Status WriteAll(int fd, const std::string& text, const std::filesystem::path& path) {
  for (size_t done = 0; done < text.size();) {
    const ssize_t n = write(fd, text.data() + done, text.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return ErrnoError("write", path, errno);
    done += static_cast<size_t>(n);
  }
  return absl::OkStatus();
}

}  // namespace

RunLogger::RunLogger() = default;

RunLogger::~RunLogger() {
  if (fd_ >= 0) close(fd_);
}

absl::StatusOr<std::unique_ptr<RunLogger>> RunLogger::Open(const RunLoggerOptions& options) {
  std::unique_ptr<RunLogger> logger(new RunLogger());
  logger->run_dir_ = options.run_dir;
  const std::filesystem::path path = options.run_dir / "metrics.jsonl";
  std::string kept;
  if (options.restored) {
    MANTA_ASSIGN_OR_RETURN(kept, logger->TakeOver(options.earlier_run.empty() ? options.run_dir : options.earlier_run,
                                                  *options.restored));
  }
  MANTA_RETURN_IF_ERROR(WriteFileAtomically(path, kept));
  logger->fd_ = open(path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
  if (logger->fd_ < 0) return ErrnoError("open", path, errno);
  if (options.tensorboard) {
    MANTA_ASSIGN_OR_RETURN(logger->events_, EventFile::Create(options.run_dir / "tb"));
    for (const StepRecord& record : logger->history_) {
      MANTA_RETURN_IF_ERROR(logger->events_->WriteScalars(record.step, record.time, record.values));
    }
  }
  return logger;
}

absl::StatusOr<std::string> RunLogger::TakeOver(const std::filesystem::path& earlier_run, const StepRecord& restored) {
  const std::filesystem::path path = earlier_run / "metrics.jsonl";
  std::string kept;
  if (std::error_code error; std::filesystem::exists(path, error)) {
    MANTA_ASSIGN_OR_RETURN(Lines lines, ReadLines(path));
    for (size_t i = 0; i < lines.texts.size(); ++i) {
      if (lines.records[i].step > restored.step) continue;
      absl::StrAppend(&kept, lines.texts[i], "\n");
      AddToHistory(std::move(lines.records[i]), history_);
    }
  }
  // A run may end between a step's checkpoint and its line.
  if (!restored.values.empty() && (history_.empty() || history_.back().step < restored.step)) {
    absl::StrAppend(&kept, LineOf(restored));
    AddToHistory(restored, history_);
  }
  return kept;
}

absl::Status RunLogger::Log(int64_t step, uint64_t weight_version, const std::map<std::string, double>& values) {
  StepRecord record{step, absl::ToDoubleSeconds(absl::Now() - absl::UnixEpoch()), weight_version, values};
  // One write: a reader sees whole lines, but for a crash in the middle.
  MANTA_RETURN_IF_ERROR(WriteAll(fd_, LineOf(record), run_dir_ / "metrics.jsonl"));
  if (events_ != nullptr) MANTA_RETURN_IF_ERROR(events_->WriteScalars(step, record.time, values));
  AddToHistory(std::move(record), history_);
  return absl::OkStatus();
}

absl::Status RunLogger::WritePlot(std::string_view title) const {
  return WriteFileAtomically(run_dir_ / "plot.svg", PlotHistory(title, history_));
}

std::string RunLogger::EndTable() const { return HistoryTable(history_); }

absl::StatusOr<std::vector<StepRecord>> ReadMetrics(const std::filesystem::path& path) {
  MANTA_ASSIGN_OR_RETURN(Lines lines, ReadLines(path));
  return std::move(lines.records);
}

}  // namespace manta::metrics
