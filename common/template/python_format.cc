#include "common/template/python_format.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "absl/strings/str_format.h"
#include "common/base/strings.h"
#include "common/template/text.h"

namespace manta::chat_template {
namespace {

void AppendRepr(std::string* out, const Value& value);

void AppendItems(std::string* out, const std::vector<Value>& items) {
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out->append(", ");
    AppendRepr(out, items[i]);
  }
}

void AppendRepr(std::string* out, const Value& value) {
  ChargeSteps(1);
  const size_t before = out->size();
  switch (value.kind()) {
    case Value::Kind::kUndefined:
      out->append("Undefined");
      break;
    case Value::Kind::kNone:
      out->append("None");
      break;
    case Value::Kind::kBool:
      out->append(value.integer() != 0 ? "True" : "False");
      break;
    case Value::Kind::kInt:
      out->append(IntText(value.integer()));
      break;
    case Value::Kind::kFloat:
      out->append(FloatRepr(value.number()));
      break;
    case Value::Kind::kString:
      out->append(value.is_markup() ? StrCat("Markup(", StringRepr(value.text()), ")") : StringRepr(value.text()));
      break;
    case Value::Kind::kList:
      out->push_back('[');
      AppendItems(out, value.items());
      out->push_back(']');
      return;
    case Value::Kind::kTuple:
      out->push_back('(');
      AppendItems(out, value.items());
      out->append(value.items().size() == 1 ? ",)" : ")");
      return;
    case Value::Kind::kDict: {
      out->push_back('{');
      bool first = true;
      for (const auto& [k, v] : value.dict().entries) {
        if (!first) out->append(", ");
        first = false;
        AppendRepr(out, k);
        out->append(": ");
        AppendRepr(out, v);
      }
      out->push_back('}');
      return;
    }
    case Value::Kind::kObject:
      out->append(value.object().Repr());
      break;
  }
  ChargeBytes(out->size() - before);
}

void AppendJsonString(std::string* out, std::string_view text, bool ensure_ascii) {
  out->push_back('"');
  for (size_t pos = 0; pos < text.size();) {
    const size_t begin = pos;
    const char32_t code = NextCodePoint(text, &pos);
    switch (code) {
      case '"':
        out->append("\\\"");
        continue;
      case '\\':
        out->append("\\\\");
        continue;
      case '\n':
        out->append("\\n");
        continue;
      case '\r':
        out->append("\\r");
        continue;
      case '\t':
        out->append("\\t");
        continue;
      case '\f':
        out->append("\\f");
        continue;
      case '\b':
        out->append("\\b");
        continue;
      default:
        break;
    }
    if (code < 0x20 || (ensure_ascii && code >= 0x7F && code < 0x10000)) {
      absl::StrAppendFormat(out, "\\u%04x", static_cast<uint32_t>(code));
    } else if (ensure_ascii && code >= 0x10000) {
      const uint32_t v = code - 0x10000;
      absl::StrAppendFormat(out, "\\u%04x\\u%04x", 0xD800 + (v >> 10), 0xDC00 + (v & 0x3FF));
    } else {
      out->append(text.substr(begin, pos - begin));
    }
  }
  out->push_back('"');
}

std::string JsonFloat(double d) {
  if (std::isnan(d)) return "NaN";
  if (std::isinf(d)) return d > 0 ? "Infinity" : "-Infinity";
  return FloatRepr(d);
}

std::string JsonKey(const Value& key) {
  switch (key.kind()) {
    case Value::Kind::kString:
      return key.text();
    case Value::Kind::kNone:
      return "null";
    case Value::Kind::kBool:
      return key.integer() != 0 ? "true" : "false";
    case Value::Kind::kInt:
      return IntText(key.integer());
    case Value::Kind::kFloat:
      return JsonFloat(key.number());
    default:
      Fail(StrCat("keys must be str, int, float, bool or None, not ", TypeName(key)));
  }
}

void AppendBreak(std::string* out, const JsonOptions& options, int level) {
  if (!options.indent) return;
  out->push_back('\n');
  ChargeBytes(static_cast<size_t>(level) * options.indent->size());
  for (int i = 0; i < level; ++i) out->append(*options.indent);
}

void AppendJson(std::string* out, const Value& value, const JsonOptions& options, int level) {
  ChargeSteps(1);
  const size_t before = out->size();
  switch (value.kind()) {
    case Value::Kind::kNone:
      out->append("null");
      break;
    case Value::Kind::kBool:
      out->append(value.integer() != 0 ? "true" : "false");
      break;
    case Value::Kind::kInt:
      out->append(IntText(value.integer()));
      break;
    case Value::Kind::kFloat:
      out->append(JsonFloat(value.number()));
      break;
    case Value::Kind::kString:
      AppendJsonString(out, value.text(), options.ensure_ascii);
      break;
    case Value::Kind::kList:
    case Value::Kind::kTuple: {
      if (value.items().empty()) {
        out->append("[]");
        return;
      }
      out->push_back('[');
      for (size_t i = 0; i < value.items().size(); ++i) {
        if (i > 0) out->append(options.item_separator);
        AppendBreak(out, options, level + 1);
        AppendJson(out, value.items()[i], options, level + 1);
      }
      AppendBreak(out, options, level);
      out->push_back(']');
      return;
    }
    case Value::Kind::kDict: {
      std::vector<const std::pair<Value, Value>*> entries;
      for (const auto& entry : value.dict().entries) entries.push_back(&entry);
      if (entries.empty()) {
        out->append("{}");
        return;
      }
      if (options.sort_keys) {
        std::stable_sort(entries.begin(), entries.end(), [](auto* a, auto* b) { return Less(a->first, b->first); });
      }
      out->push_back('{');
      for (size_t i = 0; i < entries.size(); ++i) {
        if (i > 0) out->append(options.item_separator);
        AppendBreak(out, options, level + 1);
        AppendJsonString(out, JsonKey(entries[i]->first), options.ensure_ascii);
        out->append(options.key_separator);
        AppendJson(out, entries[i]->second, options, level + 1);
      }
      AppendBreak(out, options, level);
      out->push_back('}');
      return;
    }
    default:
      Fail(StrCat("Object of type ", TypeName(value), " is not JSON serializable"));
  }
  ChargeBytes(out->size() - before);
}

}  // namespace

std::string IntText(Int i) {
  if (i == 0) return "0";
  const bool negative = i < 0;
  unsigned __int128 rest = negative ? -static_cast<unsigned __int128>(i) : static_cast<unsigned __int128>(i);
  std::string digits;
  for (; rest > 0; rest /= 10) digits.push_back(static_cast<char>('0' + static_cast<int>(rest % 10)));
  if (negative) digits.push_back('-');
  std::reverse(digits.begin(), digits.end());
  return digits;
}

std::string FloatRepr(double d) {
  if (std::isnan(d)) return "nan";
  if (std::isinf(d)) return d > 0 ? "inf" : "-inf";
  char buffer[64];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, d, std::chars_format::scientific).ptr;
  const std::string_view text(buffer, static_cast<size_t>(end - buffer));
  const size_t e = text.find('e');
  const int exponent = std::atoi(std::string(text.substr(e + 1)).c_str());
  std::string digits, out;
  for (char c : text.substr(0, e)) {
    if (c == '-') out.push_back(c);
    if (c >= '0' && c <= '9') digits.push_back(c);
  }
  const size_t count = digits.size();
  if (exponent < -4 || exponent >= 16) {
    out.push_back(digits[0]);
    if (count > 1) out.append(1, '.').append(digits, 1);
    out.append(1, 'e').append(1, exponent < 0 ? '-' : '+');
    if (std::abs(exponent) < 10) out.push_back('0');
    return out.append(std::to_string(std::abs(exponent)));
  }
  if (exponent < 0) return out.append("0.").append(static_cast<size_t>(-exponent - 1), '0').append(digits);
  const size_t whole = static_cast<size_t>(exponent) + 1;
  if (count <= whole) return out.append(digits).append(whole - count, '0').append(".0");
  return out.append(digits, 0, whole).append(1, '.').append(digits, whole);
}

std::string StringRepr(std::string_view text) {
  const char quote = text.find('\'') != std::string_view::npos && text.find('"') == std::string_view::npos ? '"' : '\'';
  std::string out(1, quote);
  for (size_t pos = 0; pos < text.size();) {
    const size_t begin = pos;
    const char32_t code = NextCodePoint(text, &pos);
    if (code == static_cast<char32_t>(quote) || code == '\\') {
      out.push_back('\\');
      out.push_back(static_cast<char>(code));
    } else if (code == '\n') {
      out.append("\\n");
    } else if (code == '\r') {
      out.append("\\r");
    } else if (code == '\t') {
      out.append("\\t");
    } else if (IsPrintable(code)) {
      out.append(text.substr(begin, pos - begin));
    } else if (code < 0x100) {
      absl::StrAppendFormat(&out, "\\x%02x", static_cast<uint32_t>(code));
    } else if (code < 0x10000) {
      absl::StrAppendFormat(&out, "\\u%04x", static_cast<uint32_t>(code));
    } else {
      absl::StrAppendFormat(&out, "\\U%08x", static_cast<uint32_t>(code));
    }
  }
  out.push_back(quote);
  return out;
}

std::string Repr(const Value& value) {
  std::string out;
  AppendRepr(&out, value);
  return out;
}

std::string Str(const Value& value) {
  if (value.is_string()) return value.text();
  if (value.is_undefined()) return "";
  return Repr(value);
}

std::string ToJson(const Value& value, const JsonOptions& options) {
  std::string out;
  AppendJson(&out, value, options, 0);
  return out;
}

std::string EscapeHtml(const Value& value) {
  if (value.is_markup()) return value.text();
  std::string out;
  for (char c : Str(value)) {
    switch (c) {
      case '&':
        out.append("&amp;");
        break;
      case '<':
        out.append("&lt;");
        break;
      case '>':
        out.append("&gt;");
        break;
      case '"':
        out.append("&#34;");
        break;
      case '\'':
        out.append("&#39;");
        break;
      default:
        out.push_back(c);
    }
  }
  return out;
}

}  // namespace manta::chat_template
