#include "common/model/config_overrides.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/file.h"
#include "common/base/status.h"

namespace manta::model {

absl::StatusOr<ModelConfig> LoadModelConfigWith(const std::filesystem::path& path, std::string_view overrides_json) {
  if (overrides_json.empty() || overrides_json == "{}") return LoadModelConfig(path);
  std::error_code error;
  const std::filesystem::path file = std::filesystem::is_directory(path, error) ? path / "config.json" : path;
  MANTA_ASSIGN_OR_RETURN(const std::string text, ReadFile(file, 16 << 20));
  return ParseModelConfigWith(text, overrides_json, file.string());
}

absl::StatusOr<ModelConfig> ParseModelConfigWith(std::string_view text, std::string_view overrides_json,
                                                 std::string_view source) {
  using Json = nlohmann::ordered_json;
  if (overrides_json.empty() || overrides_json == "{}") return ParseModelConfig(text, source);
  const std::string file(source);
  const Json overrides = Json::parse(overrides_json, nullptr, /*allow_exceptions=*/false);
  if (!overrides.is_object()) {
    return UserError(absl::StrCat(file, ": policy.hf_config_overrides is not a mapping of config.json's fields"));
  }
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return ParseModelConfig(text, source);  // says what is wrong
  json.merge_patch(overrides);
  return ParseModelConfig(json.dump(-1, ' ', false, Json::error_handler_t::replace),
                          absl::StrCat(file, " with policy.hf_config_overrides"));
}

}  // namespace manta::model
