// Looks at everything that a run will read or ask for before any worker is started: the device, the model's config and
// weights, the checkpoint that it goes on from, the tokenizer and its chat template, the datasets, the verifiers. Reads
// headers and text only; needs no LibTorch.
#pragma once

#include <filesystem>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/config/run_config.h"
#include "common/config/tree.h"
#include "common/model/config.h"

namespace manta::cli {

// The first thing wrong, with the file and the key that names it.
[[nodiscard]] absl::Status CheckRun(const config::Tree& tree, const config::RunConfig& run);

[[nodiscard]] absl::Status CheckFolder(const std::filesystem::path& dir);

// A model's folder: config.json of a known architecture and, with `weights`, safetensors that hold every parameter in
// its shape. `hf_config_overrides_json` is laid over config.json.
[[nodiscard]] absl::StatusOr<model::ModelConfig> CheckModel(const std::filesystem::path& dir, bool weights,
                                                            const std::string& hf_config_overrides_json = "{}");

// A checkpoint's policy folder: weights of that model, and the optimiser's state.
[[nodiscard]] absl::Status CheckCheckpoint(const std::filesystem::path& policy, const model::ModelConfig& config);

// The verifiers of the datasets' environments, and their options.
[[nodiscard]] absl::Status CheckEnvironments(const config::Tree& tree, const config::RunConfig& run);

}  // namespace manta::cli
