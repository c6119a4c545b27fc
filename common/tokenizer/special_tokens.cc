#include "common/tokenizer/special_tokens.h"

#include <string_view>

#include "common/base/file.h"
#include "common/base/status.h"
#include "common/tokenizer/json_node.h"

namespace manta::tokenizer {
namespace {

struct Entry {
  const char* key;
  std::optional<std::string> SpecialTokens::* field;
};
constexpr Entry kEntries[] = {
    {"bos_token", &SpecialTokens::bos}, {"eos_token", &SpecialTokens::eos}, {"pad_token", &SpecialTokens::pad},
    {"unk_token", &SpecialTokens::unk}, {"sep_token", &SpecialTokens::sep}, {"cls_token", &SpecialTokens::cls},
    {"mask_token", &SpecialTokens::mask},
};

// A token is written as its text or as {"content": its text, ...}.
absl::StatusOr<std::string> TokenText(const JsonNode& node) {
  if (!node.value().is_object()) return node.AsString();
  MANTA_ASSIGN_OR_RETURN(const JsonNode content, node.Need("content"));
  return content.AsString();
}

absl::Status ReadNames(const JsonNode& root, SpecialTokens* tokens) {
  MANTA_RETURN_IF_ERROR(root.CheckObject());
  for (const Entry& entry : kEntries) {
    if ((tokens->*entry.field).has_value()) continue;
    if (const auto node = root.Find(entry.key)) {
      MANTA_ASSIGN_OR_RETURN(tokens->*entry.field, TokenText(*node));
    }
  }
  for (const char* key : {"additional_special_tokens", "extra_special_tokens"}) {
    const auto node = root.Find(key);
    if (!node.has_value() || node->value().is_object() || !tokens->additional.empty()) continue;
    MANTA_ASSIGN_OR_RETURN(const std::vector<JsonNode> list, node->AsList());
    for (const JsonNode& item : list) {
      MANTA_ASSIGN_OR_RETURN(std::string text, TokenText(item));
      tokens->additional.push_back(std::move(text));
    }
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
    simdjson::dom::parser parser;
    MANTA_ASSIGN_OR_RETURN(const JsonNode root, ParseJson(*content, path.string(), &parser));
    MANTA_RETURN_IF_ERROR(ReadNames(root, &tokens));
    for (const auto& [key, field] : {std::pair{"add_bos_token", &tokens.add_bos}, {"add_eos_token", &tokens.add_eos}}) {
      const auto node = root.Find(key);
      if (!node.has_value() || field->has_value()) continue;
      MANTA_ASSIGN_OR_RETURN(*field, node->AsBool());
    }
  }
  return tokens;
}

}  // namespace manta::tokenizer
