// Pattern: what a Split or a Replace looks for: {"String": literal} or {"Regex": pattern} in tokenizer.json. Known
// regexes run by their scanner (scanner.h), others by PCRE2. Const and thread-safe after Load.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/tokenizer/json_node.h"
#include "common/tokenizer/regex.h"
#include "common/tokenizer/scanner.h"

namespace manta::tokenizer {

class Pattern {
 public:
  static absl::StatusOr<Pattern> Load(const JsonNode& node);
  static Pattern Literal(std::string text) { return Pattern(std::move(text)); }
  static Pattern Gpt2();

  // Appends all matches in `text` from left to right.
  absl::Status FindAll(std::string_view text, std::vector<Span>* matches) const;

  // Set where the pattern covers every text with its matches and has a scanner.
  ScanFunction scanner() const { return scanner_; }

 private:
  explicit Pattern(std::string literal) : literal_(std::move(literal)) {}

  std::string literal_;  // empty where it is a regex
  std::optional<Regex> regex_;
  ScanFunction scanner_ = nullptr;
};

// `text` with every `from` (not empty) replaced by `to`.
std::string ReplaceAll(std::string_view text, std::string_view from, std::string_view to);

}  // namespace manta::tokenizer
