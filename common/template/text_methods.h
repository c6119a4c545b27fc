// The methods of str.
#pragma once

#include <string_view>

#include "common/template/value.h"

namespace manta::chat_template {

using TextMethod = Value (*)(Interpreter& interpreter, const Value& self, const Args& args);
TextMethod FindTextMethod(std::string_view name);  // null where str has no such method

// Shared with the filters. `chars` empty: white space.
std::string Strip(std::string_view text, const std::optional<std::string>& chars, bool left, bool right);
std::string ReplaceText(std::string_view text, std::string_view from, std::string_view to, Int count);
std::string CenterText(const std::string& text, Int width, const std::string& fill);
// str.format with the arguments given.
std::string FormatText(Interpreter& interpreter, const Value& format, const Args& args);

}  // namespace manta::chat_template
