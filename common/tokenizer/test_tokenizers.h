// Small tokenizer.json files for tests.
#pragma once

#include <string>
#include <string_view>

#include "common/tokenizer/pattern.h"

namespace manta::tokenizer {

// Byte-fallback BPE over the letters of "hello", with <s> (special) and </s>; "▁" for spaces. `edit` replaced by
// `with`.
inline std::string SmallJson(std::string_view edit = "", std::string_view with = "") {
  std::string json = R"({
    "added_tokens": [{"id": 0, "content": "<s>", "special": true, "normalized": false},
                     {"id": 12, "content": "</s>", "special": true, "normalized": false}],
    "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
    "pre_tokenizer": null,
    "post_processor": {"type": "TemplateProcessing",
      "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
      "special_tokens": {"<s>": {"id": "<s>", "ids": [0], "tokens": ["<s>"]}}},
    "decoder": {"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
                                                 {"type": "ByteFallback"}, {"type": "Fuse"}]},
    "model": {"type": "BPE", "unk_token": "<s>", "byte_fallback": true,
      "vocab": {"<s>": 0, "<0xC3>": 1, "<0xA9>": 2, "<0xE2>": 3, "h": 4, "e": 5, "l": 6, "o": 7, "▁": 8, "he": 9, "ll": 10,
                "hell": 11},
      "merges": ["h e", "l l", ["he", "ll"]]}
  })";
  return edit.empty() ? json : ReplaceAll(json, edit, with);
}

}  // namespace manta::tokenizer
