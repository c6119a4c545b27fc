#include "common/model/generation_config.h"

#include "absl/strings/str_cat.h"
#include "common/base/file.h"
#include "nlohmann/json.hpp"

namespace manta::model {

absl::StatusOr<std::vector<int32_t>> ReadEosIds(const std::filesystem::path& folder,
                                                absl::Span<const int64_t> from_config) {
  std::vector<int32_t> fallback(from_config.begin(), from_config.end());
  const std::filesystem::path path = folder / "generation_config.json";
  const absl::StatusOr<std::string> text = ReadFile(path, uint64_t{1} << 20);
  if (absl::IsNotFound(text.status())) return fallback;
  if (!text.ok()) return text.status();
  const auto json = nlohmann::json::parse(*text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return absl::InvalidArgumentError(absl::StrCat(path.string(), ": not a JSON object"));
  const auto field = json.find("eos_token_id");
  if (field == json.end() || field->is_null()) return fallback;
  std::vector<int32_t> ids;
  for (const auto& id : field->is_array() ? *field : nlohmann::json::array({*field})) {
    if (!id.is_number_integer() || id.get<int64_t>() < 0 || id.get<int64_t>() > INT32_MAX) {
      return absl::InvalidArgumentError(absl::StrCat(
          path.string(), ": eos_token_id: expected a token id or a list of them, got ", field->dump().substr(0, 60)));
    }
    ids.push_back(id.get<int32_t>());
  }
  return ids;
}

}  // namespace manta::model
