// The folder of checkpoints of a run: what is written when, what is kept, where a run goes on.
//
//   checkpoint_dir/step_N/policy/weights      opens with AutoModelForCausalLM.from_pretrained
//                        policy/tokenizer     the tokenizer's files
//                        policy/optimizer     AdamW moments and float32 masters, independent of the number of ranks
//                        training_info.json   TrainingInfo
//                        config.yaml          the resolved configuration
//
// A step is written as tmp_step_N, synced and renamed, so that a step_N is always whole. The newest is always kept;
// beside it the best `keep_top_k` by the metric, the newer of equals. Not thread-safe: the controller's loop owns it.
// Errors name the file; nothing is deleted before what replaces it is safe on disk.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/file_lock.h"

namespace manta::controller {

// What, beside the trainer's state, makes the next step the same as in a run that was not interrupted.
struct TrainingInfo {
  int64_t step = 0;              // RL or SFT steps done
  int64_t consumed_samples = 0;  // rows drawn from the training set
  int64_t epoch = 0;             // of the data order below
  int64_t position = 0;          // rows of this epoch that are consumed
  uint64_t data_seed = 0;        // seed of the data order
  uint64_t weight_version = 0;
  double time = 0;               // Unix seconds at which it was saved
  std::string run_dir;           // of the run that saved it: its metrics.jsonl goes on in the run that resumes
  std::optional<double> metric;  // checkpointing.metric_name at this step, if it was measured
  std::map<std::string, double> metrics;
};

std::string ToJson(const TrainingInfo& info);
[[nodiscard]] absl::StatusOr<TrainingInfo> TrainingInfoFromJson(std::string_view json, const std::string& path);

class Checkpointer {
 public:
  struct Options {
    std::filesystem::path directory;
    std::optional<int64_t> keep_top_k;  // empty: keep all
    bool higher_is_better = true;
  };
  struct Found {
    std::filesystem::path path;
    TrainingInfo info;
  };

  explicit Checkpointer(Options options);

  // Makes the folder, and takes it for the run in `run_dir` until this object ends: two runs that write here would
  // remove each other's checkpoints. INVALID_ARGUMENT where another run has it, which is named.
  [[nodiscard]] absl::Status TakeFolder(const std::filesystem::path& run_dir);

  // The newest whole checkpoint in `directory`, if any.
  [[nodiscard]] static absl::StatusOr<std::optional<Found>> Newest(const std::filesystem::path& directory);
  // The same of this folder. Removes what an interrupted write left (tmp_step_*).
  [[nodiscard]] absl::StatusOr<std::optional<Found>> FindLatest();

  // The path of this step's checkpoint, where there is one.
  std::optional<std::filesystem::path> Find(int64_t step) const;

  // An empty tmp_step_N/policy to be filled by the trainer; its path.
  [[nodiscard]] absl::StatusOr<std::filesystem::path> Begin(int64_t step);

  // Adds training_info.json and config.yaml to tmp_step_N, makes it durable, renames it to step_N and removes what need
  // not be kept. Returns the path of step_N.
  [[nodiscard]] absl::StatusOr<std::filesystem::path> Commit(const TrainingInfo& info, std::string_view config_yaml);

 private:
  std::filesystem::path StepPath(int64_t step) const;
  std::filesystem::path TemporaryPath(int64_t step) const;
  absl::Status Prune(int64_t newest) const;

  Options options_;
  FileLock lock_;
};

}  // namespace manta::controller
