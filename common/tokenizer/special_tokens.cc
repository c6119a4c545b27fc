#include "common/tokenizer/special_tokens.h"

#include <nlohmann/json.hpp>
#include <string_view>

#include "common/base/file.h"
#include "common/base/status.h"
#include "common/base/strings.h"

namespace manta::tokenizer {
namespace {

struct Entry {
  const char* key;
  std::optional<std::string> SpecialTokens::*field;
};
constexpr Entry kEntries[] = {
    {"bos_token", &SpecialTokens::bos},   {"eos_token", &SpecialTokens::eos}, {"pad_token", &SpecialTokens::pad},
    {"unk_token", &SpecialTokens::unk},   {"sep_token", &SpecialTokens::sep}, {"cls_token", &SpecialTokens::cls},
    {"mask_token", &SpecialTokens::mask},
};

// nlohmann's parser and not simdjson's: these files hold numbers beyond 64 bits ("model_max_length": 1e30 in digits).
using nlohmann::json;

absl::Status FieldError(const std::filesystem::path& path, std::string_view key, std::string_view message) {
  return UserError(StrCat(path.string(), ": ", key, ": ", message));
}

// A token is written as its text or as {"content": its text, ...}.
absl::StatusOr<std::string> TokenText(const json& value, const std::filesystem::path& path, std::string_view key) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_object()) {
    const auto content = value.find("content");
    if (content != value.end() && content->is_string()) return content->get<std::string>();
  }
  return FieldError(path, key, "expected a token: a string, or an object with a string \"content\"");
}

absl::Status ReadList(const json& value, const std::filesystem::path& path, std::string_view key,
                      std::vector<std::string>* list) {
  if (!value.is_array()) return FieldError(path, key, "expected a list of tokens");
  for (const json& item : value) {
    MANTA_ASSIGN_OR_RETURN(std::string text, TokenText(item, path, key));
    list->push_back(std::move(text));
  }
  return absl::OkStatus();
}

// What `tokens` has already stays.
absl::Status Read(const json& root, const std::filesystem::path& path, SpecialTokens* tokens) {
  if (!root.is_object()) return UserError(StrCat(path.string(), ": expected an object"));
  for (const Entry& entry : kEntries) {
    const auto value = root.find(entry.key);
    if (value == root.end() || value->is_null() || (tokens->*entry.field).has_value()) continue;
    MANTA_ASSIGN_OR_RETURN(tokens->*entry.field, TokenText(*value, path, entry.key));
  }
  for (const char* key : {"additional_special_tokens", "extra_special_tokens"}) {
    const auto value = root.find(key);
    // An object gives names to tokens of the model's own; it lists none.
    if (value == root.end() || value->is_null() || value->is_object() || !tokens->additional.empty()) continue;
    MANTA_RETURN_IF_ERROR(ReadList(*value, path, key, &tokens->additional));
  }
  for (const auto& [key, field] : {std::pair{"add_bos_token", &tokens->add_bos}, {"add_eos_token", &tokens->add_eos}}) {
    const auto value = root.find(key);
    if (value == root.end() || value->is_null() || field->has_value()) continue;
    if (!value->is_boolean()) return FieldError(path, key, "expected true or false");
    *field = value->get<bool>();
  }
  return absl::OkStatus();
}

// The file's content, or nothing where there is no such file.
absl::StatusOr<std::optional<std::string>> ReadIfThere(const std::filesystem::path& path) {
  absl::StatusOr<std::string> content = ReadFile(path, uint64_t{64} << 20);
  if (content.ok()) return *std::move(content);
  if (absl::IsNotFound(content.status())) return std::nullopt;
  return content.status();
}

}  // namespace

std::vector<std::pair<std::string, std::string>> SpecialTokens::Named() const {
  std::vector<std::pair<std::string, std::string>> named;
  for (const Entry& entry : kEntries) {
    if (const auto& text = this->*entry.field) named.emplace_back(entry.key, *text);
  }
  return named;
}

absl::StatusOr<SpecialTokens> LoadSpecialTokens(const std::filesystem::path& dir) {
  SpecialTokens tokens;
  for (const char* name : {"tokenizer_config.json", "special_tokens_map.json"}) {
    const std::filesystem::path path = dir / name;
    MANTA_ASSIGN_OR_RETURN(const std::optional<std::string> content, ReadIfThere(path));
    if (!content.has_value()) continue;
    json root;
    try {
      root = json::parse(*content);
    } catch (const json::exception& e) {
      return UserError(StrCat(path.string(), ": not JSON: ", e.what()));
    }
    MANTA_RETURN_IF_ERROR(Read(root, path, &tokens));
  }
  return tokens;
}

}  // namespace manta::tokenizer
