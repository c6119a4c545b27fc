// Hand-written scanners for the splitting regexes that nearly every byte-level tokenizer has: several times as fast as
// a regex engine. A scanner is used only where the pattern is exactly one that is known here; each is tested against
// the pattern itself, run by PCRE2.
//
// These patterns match everything, one match after another, so a scanner only has to say where the match at `p` ends.
#pragma once

#include <string_view>

#include "common/tokenizer/unicode.h"

namespace manta::tokenizer {

// The end of the match that begins at `p`; p < end, and [p, end) is valid UTF-8 that goes to the end of the text.
using ScanFunction = const char* (*)(const CharTable& chars, const char* p, const char* end);

// GPT-2's, which is also what the pre-tokeniser ByteLevel uses.
inline constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
// cl100k and Llama 3: up to three digits together.
inline constexpr std::string_view kLlama3Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
// Qwen 2, 2.5 and 3: single digits.
inline constexpr std::string_view kQwen2Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

// The scanner for `pattern`, or null.
ScanFunction FindScanner(std::string_view pattern);

}  // namespace manta::tokenizer
