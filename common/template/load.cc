// Templates out of a model's folder.
#include "common/base/file.h"
#include "common/base/status.h"
#include "common/base/strings.h"
#include "common/template/chat_template.h"

namespace manta::chat_template {
namespace {

using Json = nlohmann::ordered_json;

constexpr uint64_t kMaxConfigBytes = uint64_t{64} << 20;

// The object in a JSON file; an empty one where there is no such file.
absl::StatusOr<Json> ReadObject(const std::filesystem::path& path) {
  absl::StatusOr<std::string> text = ReadFile(path, kMaxConfigBytes);
  if (absl::IsNotFound(text.status())) return Json::object();
  if (!text.ok()) return text.status();
  Json json = Json::parse(*text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) return absl::InvalidArgumentError(StrCat(path.string(), ": this is not JSON"));
  if (!json.is_object())
    return absl::InvalidArgumentError(StrCat(path.string(), ": expected an object, found ", json.type_name()));
  return json;
}

// A token is its text, or an object that has it as `content`.
absl::Status AddSpecialTokens(const Json& config, const std::filesystem::path& path, Json* tokens) {
  for (const char* key : {"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"}) {
    const auto it = config.find(key);
    if (it == config.end() || it->is_null() || tokens->contains(key)) continue;
    const Json& token = it->is_object() && it->contains("content") ? (*it)["content"] : *it;
    if (!token.is_string()) {
      return absl::InvalidArgumentError(
          StrCat(path.string(), ": ", key, " must be text or an object with `content`, found ", it->type_name()));
    }
    (*tokens)[key] = token;
  }
  return absl::OkStatus();
}

absl::Status ReadTemplates(const Json& value, const std::string& where, std::optional<ChatTemplate>* chat,
                           std::optional<ChatTemplate>* tool_use) {
  if (value.is_string()) {
    MANTA_ASSIGN_OR_RETURN(*chat, ChatTemplate::Parse(value.get_ref<const std::string&>(), where));
    return absl::OkStatus();
  }
  const std::string expected = StrCat(where, ": expected text or a list of {\"name\", \"template\"}");
  if (!value.is_array()) return absl::InvalidArgumentError(StrCat(expected, ", found ", value.type_name()));
  for (const Json& entry : value) {
    if (!entry.is_object() || !entry.contains("name") || !entry.contains("template") || !entry["name"].is_string() ||
        !entry["template"].is_string()) {
      return absl::InvalidArgumentError(expected);
    }
    const std::string name = entry["name"].get<std::string>();
    if (name != "default" && name != "tool_use") continue;
    MANTA_ASSIGN_OR_RETURN(ChatTemplate parsed, ChatTemplate::Parse(entry["template"].get_ref<const std::string&>(),
                                                                    StrCat(where, "[", name, "]")));
    (name == "default" ? *chat : *tool_use) = std::move(parsed);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Rendered> ModelChatTemplate::Render(const Chat& input, const RenderOptions& options) const {
  const ChatTemplate& which = tool_use && !input.tools.is_null() ? *tool_use : chat;
  if (!input.messages.is_array()) {
    return absl::InvalidArgumentError(
        StrCat(which.name(), ": messages must be a list, not ", input.messages.type_name()));
  }
  Json context = special_tokens;
  context["messages"] = input.messages;
  context["tools"] = input.tools;
  context["documents"] = input.documents;
  context["add_generation_prompt"] = input.add_generation_prompt;
  if (input.kwargs.is_object()) {
    for (const auto& [key, value] : input.kwargs.items()) context[key] = value;
  } else if (!input.kwargs.is_null()) {
    return absl::InvalidArgumentError(
        StrCat(which.name(), ": the template's arguments must be an object, not ", input.kwargs.type_name()));
  }
  return which.Render(context, options);
}

absl::StatusOr<ModelChatTemplate> LoadChatTemplate(const std::filesystem::path& model_dir) {
  const std::filesystem::path config_path = model_dir / "tokenizer_config.json";
  MANTA_ASSIGN_OR_RETURN(const Json config, ReadObject(config_path));
  std::optional<ChatTemplate> chat, tool_use;
  const std::filesystem::path file = model_dir / "chat_template.jinja";
  absl::StatusOr<std::string> source = ReadFile(file, kMaxConfigBytes);
  if (source.ok()) {
    MANTA_ASSIGN_OR_RETURN(chat, ChatTemplate::Parse(*source, file.string()));
  } else if (!absl::IsNotFound(source.status())) {
    return source.status();
  } else if (const auto it = config.find("chat_template"); it != config.end() && !it->is_null()) {
    MANTA_RETURN_IF_ERROR(ReadTemplates(*it, StrCat(config_path.string(), ": chat_template"), &chat, &tool_use));
  }
  if (!chat && tool_use) chat = tool_use;
  if (!chat) {
    return absl::NotFoundError(
        StrCat(model_dir.string(),
               " has no chat template: neither chat_template.jinja nor chat_template in tokenizer_config.json"));
  }
  ModelChatTemplate model{*std::move(chat), std::move(tool_use), Json::object()};
  MANTA_RETURN_IF_ERROR(AddSpecialTokens(config, config_path, &model.special_tokens));
  const std::filesystem::path map_path = model_dir / "special_tokens_map.json";
  MANTA_ASSIGN_OR_RETURN(const Json map, ReadObject(map_path));
  MANTA_RETURN_IF_ERROR(AddSpecialTokens(map, map_path, &model.special_tokens));
  return model;
}

}  // namespace manta::chat_template
