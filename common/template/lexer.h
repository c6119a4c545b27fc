// Splits a template's source into tokens: text, and the words of {{ }} and {% %}. Comments are dropped here, and white
// space around tags is trimmed here: as Hugging Face's environment does, a line's leading white space before a block
// tag and the newline after it go (lstrip_blocks, trim_blocks), `-` strips all white space on its side, `+` keeps it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/template/value.h"

namespace manta::chat_template {

struct Token {
  enum class Type {
    kText,
    kVariableBegin,
    kVariableEnd,
    kBlockBegin,
    kBlockEnd,
    kName,
    kString,
    kInteger,
    kFloat,
    kOperator,
    kEnd
  };
  Type type = Type::kEnd;
  std::string text;  // a name, an operator, a string's value
  Value value;       // of a number
  int line = 1;
};

// An error of the source, with the line where it stands. Thrown inside this folder only.
struct SyntaxFailure {
  int line;
  std::string message;
};

std::vector<Token> Tokenize(std::string_view source);

// For messages: "end of template", "'}}'", "name 'foo'".
std::string Describe(const Token& token);

}  // namespace manta::chat_template
