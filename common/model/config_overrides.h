// policy.hf_config_overrides: fields that replace those of a model's config.json, for trainer, generator and checks alike.
// Thread-safe.
#pragma once

#include <filesystem>
#include <string_view>

#include "absl/status/statusor.h"
#include "common/model/config.h"

namespace manta::model {

// As LoadModelConfig, with the fields of `overrides_json` (an object, or empty for none) laid over those that were read;
// null takes a field away. Errors name the file.
[[nodiscard]] absl::StatusOr<ModelConfig> LoadModelConfigWith(const std::filesystem::path& path,
                                                              std::string_view overrides_json);

// The same for a config's text that is at hand; `source` is what errors call it.
[[nodiscard]] absl::StatusOr<ModelConfig> ParseModelConfigWith(std::string_view json, std::string_view overrides_json,
                                                               std::string_view source);

}  // namespace manta::model
