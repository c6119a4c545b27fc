// Regex: a pattern in the dialect that tokenizer.json files use (Oniguruma's), run by PCRE2 with UTF, Unicode
// properties and its just-in-time compiler.
//
// Where the dialects differ the pattern is translated: \s, \w and \h mean what they mean there, ^ and $ stand at lines,
// (?m) lets the dot match line ends. What has no counterpart (set operations and nested sets within [...]) is refused.
// Const after Compile and thread-safe. A match that needs more than PCRE2's limits is an error, not a wait.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace manta::tokenizer {

// Bytes [begin, end) of a text.
struct Span {
  size_t begin, end;
  bool operator==(const Span&) const = default;
};

class Regex {
 public:
  // The error says what is wrong with the pattern and where in it, without naming a file.
  static absl::StatusOr<Regex> Compile(std::string_view pattern);

  // Appends all matches in `text` (valid UTF-8), from left to right. Empty matches that touch the one before are left
  // out.
  absl::Status FindAll(std::string_view text, std::vector<Span>* matches) const;

 private:
  explicit Regex(std::shared_ptr<const void> code) : code_(std::move(code)) {}

  std::shared_ptr<const void> code_;  // pcre2_code
};

}  // namespace manta::tokenizer
