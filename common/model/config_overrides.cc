#include "common/model/config_overrides.h"

#include "absl/strings/str_cat.h"
#include "common/base/file.h"
#include "common/base/status.h"

namespace manta::model {

absl::StatusOr<ModelConfig> LoadModelConfigWith(const std::filesystem::path& path, std::string_view overrides_json) {
  using Json = nlohmann::ordered_json;
  if (overrides_json.empty() || overrides_json == "{}") return LoadModelConfig(path);
  std::error_code error;
  const std::filesystem::path file = std::filesystem::is_directory(path, error) ? path / "config.json" : path;
  MANTA_ASSIGN_OR_RETURN(const std::string text, ReadFile(file, 16 << 20));
  const Json overrides = Json::parse(overrides_json, nullptr, /*allow_exceptions=*/false);
  if (!overrides.is_object()) return UserError(absl::StrCat(file.string(), ": its overrides are not a JSON object"));
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return ParseModelConfig(text, file.string());  // says what is wrong
  json.merge_patch(overrides);
  return ParseModelConfig(json.dump(-1, ' ', false, Json::error_handler_t::replace),
                          absl::StrCat(file.string(), " with policy.hf_config_overrides"));
}

}  // namespace manta::model
