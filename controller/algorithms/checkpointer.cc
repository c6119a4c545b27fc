#include "controller/algorithms/checkpointer.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/file.h"
#include "common/base/status.h"
#include "nlohmann/json.hpp"

namespace manta::controller {
namespace fs = std::filesystem;
namespace {

constexpr char kInfoFile[] = "training_info.json";

std::optional<int64_t> StepOf(const fs::path& path, absl::string_view prefix) {
  const std::string name = path.filename().string();
  absl::string_view rest = name;
  int64_t step = 0;
  if (!absl::ConsumePrefix(&rest, prefix) || !absl::SimpleAtoi(rest, &step) || step < 0) return std::nullopt;
  return step;
}

// Every file and folder below `root` reaches the disk, so that the rename that follows never exposes a part.
absl::Status SyncTree(const fs::path& root) {
  std::error_code error;
  for (fs::recursive_directory_iterator it(root, error), end; !error && it != end; it.increment(error)) {
    const int fd = open(it->path().c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) return ErrnoError("open", it->path(), errno);
    const int failed = fsync(fd) != 0 ? errno : 0;
    close(fd);
    if (failed != 0) return ErrnoError("sync", it->path(), failed);
  }
  if (error) return ErrnoError("list", root, error.value());
  return SyncDirectory(root);
}

absl::StatusOr<std::vector<int64_t>> StepsIn(const fs::path& directory) {
  std::vector<int64_t> steps;
  std::error_code error;
  for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error)) {
    if (auto step = StepOf(it->path(), "step_")) steps.push_back(*step);
  }
  if (error) return ErrnoError("list", directory, error.value());
  std::sort(steps.begin(), steps.end());
  return steps;
}

absl::StatusOr<TrainingInfo> ReadInfo(const fs::path& checkpoint) {
  MANTA_ASSIGN_OR_RETURN(const std::string json, ReadFile(checkpoint / kInfoFile, 1 << 20));
  return TrainingInfoFromJson(json, (checkpoint / kInfoFile).string());
}

}  // namespace

std::string ToJson(const TrainingInfo& info) {
  nlohmann::ordered_json json = {
      {"step", info.step},           {"consumed_samples", info.consumed_samples},
      {"epoch", info.epoch},         {"position", info.position},
      {"data_seed", info.data_seed}, {"weight_version", info.weight_version},
      {"time", info.time},           {"run_dir", info.run_dir},
      {"metrics", info.metrics},
  };
  json["metric"] = info.metric ? nlohmann::ordered_json(*info.metric) : nlohmann::ordered_json(nullptr);
  return json.dump(2) + "\n";
}

absl::StatusOr<TrainingInfo> TrainingInfoFromJson(std::string_view text, const std::string& path) {
  TrainingInfo info;
  try {
    const auto json = nlohmann::json::parse(text);
    info.step = json.at("step").get<int64_t>();
    info.consumed_samples = json.at("consumed_samples").get<int64_t>();
    info.epoch = json.at("epoch").get<int64_t>();
    info.position = json.at("position").get<int64_t>();
    info.data_seed = json.at("data_seed").get<uint64_t>();
    info.weight_version = json.at("weight_version").get<uint64_t>();
    info.time = json.value("time", 0.0);
    info.run_dir = json.value("run_dir", std::string());
    if (!json.at("metric").is_null()) info.metric = json.at("metric").get<double>();
    for (const auto& [name, value] : json.at("metrics").items()) {
      if (value.is_number()) info.metrics[name] = value.get<double>();
    }
  } catch (const nlohmann::json::exception& e) {
    return UserError(absl::StrCat(path, ": not a checkpoint's training information: ", e.what()));
  }
  return info;
}

Checkpointer::Checkpointer(Options options) : options_(std::move(options)) {}

absl::Status Checkpointer::TakeFolder(const fs::path& run_dir) {
  std::error_code error;
  fs::create_directories(options_.directory, error);
  if (error) return ErrnoError("create", options_.directory, error.value());
  absl::StatusOr<FileLock> lock = FileLock::Take(options_.directory / ".lock", run_dir.string());
  if (absl::IsAlreadyExists(lock.status())) {
    return UserError(absl::StrCat("the run in ", lock.status().message(), " writes its checkpoints to ",
                                  options_.directory.string(),
                                  ": give this one a folder of its own, or wait for that one"));
  }
  if (lock.ok()) lock_ = *std::move(lock);  // a file system without locks: as before there were any
  return absl::OkStatus();
}

fs::path Checkpointer::StepPath(int64_t step) const {
  return options_.directory / absl::StrCat("step_", step);
}

absl::StatusOr<std::optional<Checkpointer::Found>> Checkpointer::Newest(const fs::path& directory) {
  std::error_code error;
  if (!fs::exists(directory, error)) return std::nullopt;
  MANTA_ASSIGN_OR_RETURN(const auto steps, StepsIn(directory));
  if (steps.empty()) return std::nullopt;
  const fs::path path = directory / absl::StrCat("step_", steps.back());
  MANTA_ASSIGN_OR_RETURN(TrainingInfo info, ReadInfo(path));
  return Found{path, std::move(info)};
}

fs::path Checkpointer::TemporaryPath(int64_t step) const {
  return options_.directory / absl::StrCat("tmp_step_", step);
}

absl::StatusOr<std::optional<Checkpointer::Found>> Checkpointer::FindLatest() {
  std::error_code error;
  if (!fs::exists(options_.directory, error)) return std::nullopt;
  for (fs::directory_iterator it(options_.directory, error), end; !error && it != end; it.increment(error)) {
    if (!StepOf(it->path(), "tmp_step_")) continue;
    std::error_code removal;
    fs::remove_all(it->path(), removal);
    if (removal) return ErrnoError("remove", it->path(), removal.value());
  }
  return Newest(options_.directory);
}

std::optional<fs::path> Checkpointer::Find(int64_t step) const {
  std::error_code error;
  if (!fs::exists(StepPath(step), error)) return std::nullopt;
  return StepPath(step);
}

absl::StatusOr<fs::path> Checkpointer::Begin(int64_t step) {
  const fs::path temporary = TemporaryPath(step);
  std::error_code error;
  fs::remove_all(temporary, error);
  fs::create_directories(temporary / "policy", error);
  if (error) return ErrnoError("create", temporary / "policy", error.value());
  return temporary / "policy";
}

absl::StatusOr<fs::path> Checkpointer::Commit(const TrainingInfo& info, std::string_view config_yaml) {
  const fs::path temporary = TemporaryPath(info.step), final = StepPath(info.step);
  MANTA_RETURN_IF_ERROR(WriteFileAtomically(temporary / kInfoFile, ToJson(info)));
  MANTA_RETURN_IF_ERROR(WriteFileAtomically(temporary / "config.yaml", config_yaml));
  MANTA_RETURN_IF_ERROR(SyncTree(temporary));
  std::error_code error;
  if (fs::exists(final, error)) {
    // A run that was started again over its own steps: the older of the two steps gives way.
    fs::remove_all(final, error);
    if (error) return ErrnoError("replace", final, error.value());
  }
  fs::rename(temporary, final, error);
  if (error) return ErrnoError("rename", temporary, error.value());
  MANTA_RETURN_IF_ERROR(SyncDirectory(options_.directory));
  MANTA_RETURN_IF_ERROR(Prune(info.step));
  return final;
}

absl::Status Checkpointer::Prune(int64_t newest) const {
  if (!options_.keep_top_k) return absl::OkStatus();
  MANTA_ASSIGN_OR_RETURN(const auto steps, StepsIn(options_.directory));
  struct Candidate {
    int64_t step;
    std::optional<double> metric;
  };
  std::vector<Candidate> candidates;
  for (int64_t step : steps) {
    MANTA_ASSIGN_OR_RETURN(const TrainingInfo info, ReadInfo(StepPath(step)));
    candidates.push_back({step, info.metric});
  }
  // Best first; a step without the metric is worse than any with it; of equals the newer comes first.
  std::sort(candidates.begin(), candidates.end(), [this](const Candidate& a, const Candidate& b) {
    if (a.metric.has_value() != b.metric.has_value()) return a.metric.has_value();
    if (a.metric && *a.metric != *b.metric) return options_.higher_is_better == (*a.metric > *b.metric);
    return a.step > b.step;
  });
  for (size_t i = 0; i < candidates.size(); ++i) {
    if (static_cast<int64_t>(i) < *options_.keep_top_k || candidates[i].step == newest) continue;
    std::error_code error;
    fs::remove_all(StepPath(candidates[i].step), error);
    if (error) return ErrnoError("remove", StepPath(candidates[i].step), error.value());
  }
  return absl::OkStatus();
}

}  // namespace manta::controller
