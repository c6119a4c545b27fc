// Chat templates: messages and tools to the text that a model was trained on.
//
// A ChatTemplate is a parsed Jinja template as Hugging Face tokenizers carry them, run as transformers runs them
// (trim_blocks, lstrip_blocks, loop controls, raise_exception, strftime_now, tojson without HTML escapes, the
// `generation` block) and with the text that it would give, to the byte. It is immutable and safe to use from several
// threads at once. A template is untrusted: it reads nothing but its context, and steps, text and nesting are bounded.
//
// Errors (INVALID_ARGUMENT) name the template and the line: "chat_template.jinja:12: 'tool' is undefined".
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "nlohmann/json.hpp"

namespace manta::chat_template {

struct ParsedTemplate;

struct RenderLimits {
  int64_t steps = 10'000'000;          // statements, operations and loop rounds
  int64_t bytes = int64_t{512} << 20;  // of all text that is built or looked through, intermediate strings too
};

struct RenderOptions {
  RenderLimits limits;
  // What strftime_now sees, in local time; the clock where absent.
  std::optional<absl::CivilSecond> now;
};

struct Rendered {
  std::string text;
  // Byte ranges of `text` that came out of {% generation %} blocks: what the assistant said.
  std::vector<std::pair<size_t, size_t>> generation;
};

class ChatTemplate {
 public:
  // `name` is what errors call it. The source must be UTF-8 and at most 1 MiB.
  [[nodiscard]] static absl::StatusOr<ChatTemplate> Parse(std::string_view source, std::string name);

  // The names of `context` (an object) are the template's variables.
  [[nodiscard]] absl::StatusOr<Rendered> Render(const nlohmann::ordered_json& context,
                                                const RenderOptions& options = {}) const;

  const std::string& name() const;
  // The source as it was given.
  const std::string& source() const;

 private:
  std::shared_ptr<const ParsedTemplate> parsed_;
};

// One conversation.
struct Chat {
  nlohmann::ordered_json messages = nlohmann::ordered_json::array();  // [{"role": ..., "content": ...}, ...]
  nlohmann::ordered_json tools;                                       // null, or JSON schemas
  nlohmann::ordered_json documents;                                   // null, or [{"title": ..., "text": ...}]
  bool add_generation_prompt = false;
  nlohmann::ordered_json kwargs = nlohmann::ordered_json::object();  // enable_thinking and the like
};

// A model's templates with its special tokens.
struct ModelChatTemplate {
  ChatTemplate chat;
  std::optional<ChatTemplate> tool_use;                                      // used where tools are given
  nlohmann::ordered_json special_tokens = nlohmann::ordered_json::object();  // "bos_token": "<s>", ...

  [[nodiscard]] absl::StatusOr<Rendered> Render(const Chat& chat, const RenderOptions& options = {}) const;
};

// Reads chat_template.jinja, else `chat_template` of tokenizer_config.json (text, or a list of {name, template}:
// "default" and "tool_use"), and the special tokens of tokenizer_config.json and special_tokens_map.json (text, or
// objects with `content`). NOT_FOUND where the folder has no template.
[[nodiscard]] absl::StatusOr<ModelChatTemplate> LoadChatTemplate(const std::filesystem::path& model_dir);

}  // namespace manta::chat_template
