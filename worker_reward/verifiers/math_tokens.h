// LaTeX and plain spellings of an answer as one stream of tokens. Spacing, sizing, currency signs, degree signs and
// styling commands disappear here; \dfrac is \frac, "≤" is \le, and so on. Text is never executed.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace manta::reward {

struct MathToken {
  enum class Type { kNumber, kLetter, kCommand, kWord, kSymbol };
  Type type;
  std::string text;  // digits; a letter; a command without its backslash; a word; one character
  bool space_before = false;
  bool operator==(const MathToken& other) const { return type == other.type && text == other.text; }
};

// Longer answers are not answers: they give no tokens.
inline constexpr size_t kMaxAnswerBytes = 2000;

std::vector<MathToken> MathTokens(std::string_view answer);

// The answer's letters and digits in lower case, for answers that are words: "\text{(C)}" -> "c".
std::string PlainText(std::string_view answer);

}  // namespace manta::reward
