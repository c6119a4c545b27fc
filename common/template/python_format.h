// How Python writes values as text: str, repr, json.dumps, the % operator and str.format.
//
// Thread-safe; errors are thrown as TemplateFailure (value.h).
#pragma once

#include <string>
#include <string_view>

#include "common/template/value.h"

namespace manta::chat_template {

std::string IntText(Int i);
// The shortest digits that read back as the same double, laid out as Python does: 1.0, 1e-07, 1e+16, inf, nan.
std::string FloatRepr(double d);
std::string StringRepr(std::string_view text);

std::string Repr(const Value& value);
std::string Str(const Value& value);

struct JsonOptions {
  bool ensure_ascii = false;
  std::optional<std::string> indent;  // a level's text
  std::string item_separator = ", ";
  std::string key_separator = ": ";
  bool sort_keys = false;
};
std::string ToJson(const Value& value, const JsonOptions& options);

// `format % args`; args is a tuple, a dict or a single value. `escape`: text put in is escaped for HTML (Markup).
std::string PercentFormat(const std::string& format, const Value& args, bool escape);

// One replacement field of str.format: format(value, spec).
std::string FormatValue(const Value& value, std::string_view spec);

// & < > " ' as entities; Markup passes.
std::string EscapeHtml(const Value& value);

}  // namespace manta::chat_template
