// Looks at everything that a run will read before any worker is started: the model's config and weights, the tokenizer
// and its chat template, the datasets. Reads headers and text only; needs no GPU and no LibTorch.
#pragma once

#include <filesystem>
#include <string>

#include "absl/status/status.h"
#include "common/config/run_config.h"
#include "common/config/tree.h"

namespace manta::cli {

// The first thing wrong, with the file and the key that names it.
[[nodiscard]] absl::Status CheckRun(const config::Tree& tree, const config::RunConfig& run);

// A model's folder: config.json of a known architecture and, with `weights`, safetensors that hold every parameter in
// its shape. `hf_config_overrides_json` is laid over config.json.
[[nodiscard]] absl::Status CheckModel(const std::filesystem::path& dir, bool weights,
                                      const std::string& hf_config_overrides_json = "{}");

}  // namespace manta::cli
