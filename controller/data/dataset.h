// Datasets: JSONL files as rows of conversations and right answers.
//
// Loaded whole and checked whole, so that a bad line is one error before anything starts: file:line, field, what was
// expected. Immutable afterwards and safe to read from any thread.
//
//   openai_format     {"messages": [{"role": "user", "content": "..."}, ...]}; the keys are data.chat_key, .system_key, .tool_key
//   ResponseDataset   {"input": "...", "output": "..."}; the keys are data.input_key and .output_key
//   gsm8k             {"question": "...", "answer": "... #### 42"}
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "common/config/run_config.h"
#include "nlohmann/json.hpp"

namespace manta::controller {

struct DatasetRow {
  nlohmann::ordered_json messages;  // array of {role, content, ...}, as chat templates take them
  nlohmann::ordered_json tools;     // array, or null
  std::string problem;              // as text, for verifiers; empty for conversations
  std::string ground_truth;         // empty where the dataset has none
  std::string metadata_json;        // the row as it stands in the file
  int64_t line = 0;                 // 1-based
};

struct Dataset {
  std::string path;
  std::string env_name;
  std::vector<DatasetRow> rows;
};

// Reads `config.data_path`. `repeat` copies the rows that many times.
[[nodiscard]] absl::StatusOr<Dataset> LoadDataset(const config::DatasetConfig& config);

// The same from text; `path` names it in errors.
[[nodiscard]] absl::StatusOr<Dataset> ParseDataset(std::string_view text, const std::string& path,
                                                   const config::DatasetConfig& config);

// The training and the validation set of a run: data.validation's file, or split_validation_size of the training set
// (a fraction of its rows, chosen by its seed). The second may be empty.
[[nodiscard]] absl::StatusOr<std::pair<Dataset, Dataset>> LoadTrainAndValidation(const config::DataConfig& config,
                                                                                 uint64_t seed);

// The rows that training draws at once, and the key that says how many.
std::pair<int64_t, const char*> RowsOfAStep(const config::RunConfig& run);

// INVALID_ARGUMENT where the set has fewer than `needed` rows; `key` is what asks for them.
[[nodiscard]] absl::Status RequireRows(const Dataset& dataset, int64_t needed, const char* key);

}  // namespace manta::controller
