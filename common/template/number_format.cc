// The % operator and the format mini-language of str.format.
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "common/base/strings.h"
#include "common/template/python_format.h"
#include "common/template/text.h"

namespace manta::chat_template {
namespace {

constexpr int kMaxWidth = 10000;

struct Spec {
  std::string fill = " ";
  char align = 0;  // < > ^ =
  char sign = '-';
  bool alternate = false;
  bool zero = false;
  int width = 0;
  char grouping = 0;  // , or _
  int precision = -1;
  char type = 0;
};

std::string Pad(std::string body, const Spec& spec, char default_align, size_t sign_length) {
  ChargeBytes(static_cast<size_t>(spec.width));
  const size_t length = CodePointCount(body);
  if (length >= static_cast<size_t>(spec.width)) return body;
  const size_t missing = static_cast<size_t>(spec.width) - length;
  auto fill = [&](size_t n) {
    std::string out;
    for (size_t i = 0; i < n; ++i) out += spec.fill;
    return out;
  };
  switch (spec.align != 0 ? spec.align : default_align) {
    case '<':
      return body + fill(missing);
    case '^':
      return fill(missing / 2) + body + fill(missing - missing / 2);
    case '=':
      return body.substr(0, sign_length) + fill(missing) + body.substr(sign_length);
    default:
      return fill(missing) + body;
  }
}

std::string Group(const std::string& digits, char separator, size_t every) {
  std::string out;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % every == 0) out.push_back(separator);
    out.push_back(digits[i]);
  }
  return out;
}

std::string InBase(unsigned __int128 magnitude, unsigned base, bool upper) {
  if (magnitude == 0) return "0";
  const std::string_view digits = upper ? "0123456789ABCDEF" : "0123456789abcdef";
  std::string out;
  for (; magnitude > 0; magnitude /= base) out.push_back(digits[static_cast<size_t>(magnitude % base)]);
  std::reverse(out.begin(), out.end());
  return out;
}

std::string Printf(double magnitude, char type, int precision, bool alternate) {
  const char format[] = {
      '%', alternate ? '#' : '.', alternate ? '.' : '*', alternate ? '*' : type, alternate ? type : '\0', '\0'};
  std::string out(static_cast<size_t>(precision) + 400, '\0');
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
  const int length = std::snprintf(out.data(), out.size(), format, precision, magnitude);
#pragma GCC diagnostic pop
  out.resize(static_cast<size_t>(length));
  return out;
}

std::string SignOf(bool negative, char sign) {
  if (negative) return "-";
  return sign == '+' || sign == ' ' ? std::string(1, sign) : "";
}

// Digits of a float without its sign.
std::string FloatBody(double magnitude, const Spec& spec) {
  const bool upper = spec.type == 'E' || spec.type == 'F' || spec.type == 'G';
  if (!std::isfinite(magnitude)) {
    const std::string word = std::isnan(magnitude) ? "nan" : "inf";
    return (upper ? ToUpper(word) : word) + (spec.type == '%' ? "%" : "");
  }
  switch (spec.type) {
    case 0: {
      if (spec.precision < 0) return FloatRepr(magnitude);
      std::string out = Printf(magnitude, 'g', std::max(spec.precision, 1), spec.alternate);
      if (out.find_first_of(".e") == std::string::npos) out += ".0";
      return out;
    }
    case '%':
      return Printf(magnitude * 100, 'f', spec.precision < 0 ? 6 : spec.precision, spec.alternate) + "%";
    case 'n':
      return Printf(magnitude, 'g', spec.precision < 0 ? 6 : std::max(spec.precision, 1), spec.alternate);
    case 'g':
    case 'G':
      return Printf(magnitude, spec.type, spec.precision < 0 ? 6 : std::max(spec.precision, 1), spec.alternate);
    default:
      return Printf(magnitude, spec.type, spec.precision < 0 ? 6 : spec.precision, spec.alternate);
  }
}

std::string FormatFloat(double d, const Spec& spec) {
  std::string body = FloatBody(std::fabs(d), spec);
  if (spec.grouping != 0) {
    const size_t end = std::min(body.find_first_not_of("0123456789"), body.size());
    body = Group(body.substr(0, end), spec.grouping, 3) + body.substr(end);
  }
  const std::string sign = SignOf(std::signbit(d) && !std::isnan(d), spec.sign);
  return Pad(sign + body, spec, spec.zero ? '=' : '>', sign.size());
}

std::string FormatInt(Int i, const Spec& spec) {
  const unsigned __int128 magnitude = i < 0 ? -static_cast<unsigned __int128>(i) : static_cast<unsigned __int128>(i);
  std::string digits, prefix;
  switch (spec.type) {
    case 'b':
      digits = InBase(magnitude, 2, false), prefix = "0b";
      break;
    case 'o':
      digits = InBase(magnitude, 8, false), prefix = "0o";
      break;
    case 'x':
      digits = InBase(magnitude, 16, false), prefix = "0x";
      break;
    case 'X':
      digits = InBase(magnitude, 16, true), prefix = "0X";
      break;
    default:
      digits = InBase(magnitude, 10, false);
      break;
  }
  if (spec.grouping != 0) digits = Group(digits, spec.grouping, prefix.empty() ? 3 : 4);
  const std::string sign = SignOf(i < 0, spec.sign) + (spec.alternate ? prefix : "");
  return Pad(sign + digits, spec, spec.zero ? '=' : '>', sign.size());
}

Spec ParseSpec(std::string_view text) {
  Spec spec;
  const std::vector<std::string_view> chars = SplitCodePoints(text);
  size_t i = 0;
  auto at = [&](size_t k) { return k < chars.size() && chars[k].size() == 1 ? chars[k][0] : '\0'; };
  auto is_align = [](char c) { return c == '<' || c == '>' || c == '^' || c == '='; };
  auto number = [&](int* out) {
    bool any = false;
    int value = 0;
    for (; at(i) >= '0' && at(i) <= '9'; ++i, any = true) {
      value = value * 10 + (at(i) - '0');
      if (value > kMaxWidth) Fail(StrCat("format widths and precisions end at ", kMaxWidth));
    }
    if (any) *out = value;
    return any;
  };
  if (chars.size() > 1 && is_align(at(1))) {
    spec.fill = std::string(chars[0]);
    spec.align = at(1);
    i = 2;
  } else if (is_align(at(0))) {
    spec.align = at(0);
    i = 1;
  }
  if (at(i) == '+' || at(i) == '-' || at(i) == ' ') spec.sign = at(i++);
  if (at(i) == '#') spec.alternate = true, ++i;
  if (at(i) == '0') {
    spec.zero = true;
    if (spec.align == 0) spec.fill = "0";
    ++i;
  }
  number(&spec.width);
  if (at(i) == ',' || at(i) == '_') spec.grouping = at(i++);
  if (at(i) == '.') {
    ++i;
    if (!number(&spec.precision)) Fail("Format specifier missing precision");
  }
  if (i < chars.size()) spec.type = at(i++);
  if (i < chars.size()) Fail(StrCat("Invalid format specifier '", text, "'"));
  return spec;
}

// One conversion of the % operator, as text.
std::string Convert(const Value& value, const Spec& spec, bool left, bool escape) {
  Spec padded = spec;
  padded.align = left ? '<' : 0;
  if (left) padded.fill = " ";
  switch (spec.type) {
    case 's':
    case 'r':
    case 'a': {
      std::string body = spec.type == 's' ? Str(value) : Repr(value);
      if (escape) body = spec.type == 's' ? EscapeHtml(value) : EscapeHtml(Value::String(body));
      if (spec.precision >= 0) {
        const auto chars = SplitCodePoints(body);
        std::string cut;
        for (size_t i = 0; i < chars.size() && i < static_cast<size_t>(spec.precision); ++i) cut += chars[i];
        body = cut;
      }
      padded.fill = " ";
      return Pad(body, padded, '>', 0);
    }
    case 'c': {
      std::string body;
      if (value.is_integral()) {
        AppendUtf8(&body, static_cast<char32_t>(value.integer()));
      } else if (value.is_string() && CodePointCount(value.text()) == 1) {
        body = value.text();
      } else {
        Fail("%c requires int or char");
      }
      padded.fill = " ";
      return Pad(body, padded, '>', 0);
    }
    case 'd':
    case 'i':
    case 'u':
      if (value.is_float() && !std::isfinite(value.number())) Fail("cannot convert float infinity or nan to integer");
      if (!value.is_number())
        Fail(StrCat("%", std::string(1, spec.type), " format: a real number is required, not ", TypeName(value)));
      padded.type = 'd';
      if (value.is_float() && std::fabs(value.number()) > 1e38) Fail("the number is too large for %d");
      return FormatInt(value.is_float() ? static_cast<Int>(value.number()) : value.integer(), padded);
    case 'o':
    case 'x':
    case 'X':
      if (!value.is_integral())
        Fail(StrCat("%", std::string(1, spec.type), " format: an integer is required, not ", TypeName(value)));
      return FormatInt(value.integer(), padded);
    case 'e':
    case 'E':
    case 'f':
    case 'F':
    case 'g':
    case 'G':
      if (!value.is_number()) Fail(StrCat("must be real number, not ", TypeName(value)));
      return FormatFloat(value.number(), padded);
    default:
      Fail(StrCat("unsupported format character '", std::string(1, spec.type), "'"));
  }
}

}  // namespace

std::string PercentFormat(const std::string& format, const Value& args, bool escape) {
  const bool mapping = args.is_dict() || args.is_list() || args.is_undefined() || TypeName(args) == "range";
  size_t used = 0;
  auto next = [&]() -> Value {
    if (args.is_tuple()) {
      if (used >= args.items().size()) Fail("not enough arguments for format string");
      return args.items()[used++];
    }
    if (used++ > 0) Fail("not enough arguments for format string");
    return args;
  };
  std::string out;
  for (size_t i = 0; i < format.size(); ++i) {
    if (format[i] != '%') {
      out.push_back(format[i]);
      continue;
    }
    auto at = [&]() -> char {
      if (i >= format.size()) Fail("incomplete format");
      return format[i];
    };
    ++i;
    Spec spec;
    bool left = false;
    std::optional<Value> keyed;
    if (at() == '(') {
      const size_t close = format.find(')', i);
      if (close == std::string::npos) Fail("incomplete format key");
      if (!args.is_dict()) Fail("format requires a mapping");
      const std::string key = format.substr(i + 1, close - i - 1);
      const Value* found = args.dict().Find(key);
      if (found == nullptr) Fail(StringRepr(key));
      keyed = *found;
      i = close + 1;
    }
    for (bool more = true; more;) {
      switch (at()) {
        case '-':
          left = true;
          break;
        case '+':
          spec.sign = '+';
          break;
        case ' ':
          spec.sign = spec.sign == '+' ? '+' : ' ';
          break;
        case '#':
          spec.alternate = true;
          break;
        case '0':
          spec.zero = true, spec.fill = "0";
          break;
        default:
          more = false;
      }
      if (more) ++i;
    }
    auto number = [&](int* target) {
      if (at() == '*') {
        ++i;
        const Value value = next();
        if (!value.is_integral()) Fail("* wants int");
        if (value.integer() > kMaxWidth || value.integer() < -kMaxWidth) {
          Fail(StrCat("format widths and precisions end at ", kMaxWidth));
        }
        *target = static_cast<int>(value.integer());
        return;
      }
      int value = 0;
      for (; at() >= '0' && at() <= '9'; ++i) {
        value = value * 10 + (at() - '0');
        if (value > kMaxWidth) Fail(StrCat("format widths and precisions end at ", kMaxWidth));
      }
      *target = value;
    };
    number(&spec.width);
    if (spec.width < 0) left = true, spec.width = -spec.width;
    if (at() == '.') {
      ++i;
      number(&spec.precision);
      spec.precision = std::max(spec.precision, 0);
    }
    while (at() == 'h' || at() == 'l' || at() == 'L') ++i;
    spec.type = at();
    if (spec.type == '%') {
      out.push_back('%');
      continue;
    }
    out += Convert(keyed ? *keyed : next(), spec, left, escape);
  }
  const bool all = args.is_tuple() ? used >= args.items().size() : (mapping || used > 0);
  if (!all) Fail("not all arguments converted during string formatting");
  return out;
}

std::string FormatValue(const Value& value, std::string_view text) {
  if (text.empty()) return Str(value);
  const Spec spec = ParseSpec(text);
  auto unknown = [&] {
    Fail(StrCat("Unknown format code '", std::string(1, spec.type), "' for object of type '", TypeName(value), "'"));
  };
  if (value.is_string()) {
    if (spec.type != 0 && spec.type != 's') unknown();
    if (spec.align == '=') Fail("'=' alignment not allowed in string format specifier");
    std::string body = value.text();
    if (spec.precision >= 0) {
      const auto chars = SplitCodePoints(value.text());
      body.clear();
      for (size_t i = 0; i < chars.size() && i < static_cast<size_t>(spec.precision); ++i) body += chars[i];
    }
    return Pad(body, spec, '<', 0);
  }
  const bool float_type = spec.type != 0 && std::string_view("eEfFgG%").find(spec.type) != std::string_view::npos;
  if (value.is_integral() && !float_type) {
    if (spec.type == 'c') {
      std::string body;
      AppendUtf8(&body, static_cast<char32_t>(value.integer()));
      return Pad(body, spec, '<', 0);
    }
    if (spec.type != 0 && std::string_view("bdoxXn").find(spec.type) == std::string_view::npos) unknown();
    if (spec.precision >= 0) Fail("Precision not allowed in integer format specifier");
    return FormatInt(value.integer(), spec);
  }
  if (value.is_number()) {
    if (spec.type != 0 && !float_type && spec.type != 'n') unknown();
    return FormatFloat(value.number(), spec);
  }
  Fail(StrCat("unsupported format string passed to ", TypeName(value), ".__format__"));
}

}  // namespace manta::chat_template
