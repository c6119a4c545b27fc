// Chat templates: parsing, and rendering a conversation within small limits.
#include "common/template/chat_template.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view source(reinterpret_cast<const char*>(data), size);
  auto parsed = manta::chat_template::ChatTemplate::Parse(source, "fuzz");
  if (!parsed.ok()) return 0;
  static const auto& context = *new nlohmann::ordered_json(nlohmann::ordered_json::parse(
      R"({"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "h\u00e9 <b>"},
          {"role": "assistant", "content": "a", "tool_calls": [{"function": {"name": "f", "arguments": {"x": [1, 2.5, null]}}}]}],
          "tools": [{"function": {"name": "f", "parameters": {}}}], "bos_token": "<s>", "eos_token": "</s>",
          "add_generation_prompt": true})"));
  manta::chat_template::RenderOptions options;
  options.limits = {.steps = 100000, .bytes = 1 << 24};
  options.now = absl::CivilSecond(2025, 1, 2, 3, 4, 5);
  (void)parsed->Render(context, options);
  return 0;
}
