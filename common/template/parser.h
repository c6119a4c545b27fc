// Source text to tree. Throws SyntaxFailure (lexer.h). Nesting and the height of expressions are bounded.
#pragma once

#include <string_view>

#include "common/template/ast.h"

namespace manta::chat_template {

Body ParseTemplate(std::string_view source);

}  // namespace manta::chat_template
