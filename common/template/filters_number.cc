// Filters over numbers, and the table of all filters.
#include <cmath>
#include <cstdlib>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "common/base/strings.h"
#include "common/template/builtins.h"
#include "common/template/interpreter.h"
#include "common/template/python_format.h"
#include "common/template/text.h"

namespace manta::chat_template {
namespace {

// float(text), as Python reads it.
std::optional<double> ReadFloat(std::string_view raw) {
  std::string text;
  const std::string_view stripped = StripRight(StripLeft(raw));
  for (size_t i = 0; i < stripped.size(); ++i) {
    if (stripped[i] != '_') {
      text.push_back(stripped[i]);
      continue;
    }
    const bool between = i > 0 && i + 1 < stripped.size() &&
                         absl::ascii_isdigit(static_cast<unsigned char>(stripped[i - 1])) &&
                         absl::ascii_isdigit(static_cast<unsigned char>(stripped[i + 1]));
    if (!between) return std::nullopt;
  }
  if (text.empty() || text.find_first_of("xXpP(") != std::string::npos) return std::nullopt;
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (end != text.c_str() + text.size()) return std::nullopt;
  return value;
}

// int(text, base), as Python reads it.
std::optional<Int> ReadInt(std::string_view raw, Int base) {
  std::string text(StripRight(StripLeft(raw)));
  if (base != 0 && (base < 2 || base > 36)) return std::nullopt;
  bool negative = false;
  size_t at = 0;
  if (at < text.size() && (text[at] == '+' || text[at] == '-')) negative = text[at++] == '-';
  if (at + 1 < text.size() && text[at] == '0') {
    const char kind = static_cast<char>(text[at + 1] | 32);
    const Int prefix = kind == 'x' ? 16 : kind == 'o' ? 8 : kind == 'b' ? 2 : 0;
    if (prefix != 0 && (base == 0 || base == prefix)) {
      base = prefix;
      at += 2;
      if (at < text.size() && text[at] == '_') ++at;
    }
  }
  const bool guessed = base == 0;
  if (guessed) base = 10;
  if (at >= text.size()) return std::nullopt;
  Int value = 0;
  bool after_digit = false, leading_zero = false;
  for (size_t i = at; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '_' && after_digit && i + 1 < text.size()) {
      after_digit = false;
      continue;
    }
    const int digit = c >= '0' && c <= '9' ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'z' ? (c | 32) - 'a' + 10 : 99;
    if (digit >= base) return std::nullopt;
    if (i == at && digit == 0) leading_zero = true;
    if (__builtin_mul_overflow(value, base, &value) || __builtin_add_overflow(value, static_cast<Int>(digit), &value)) {
      Fail("integer overflow: at most 128 bits are kept");
    }
    after_digit = true;
  }
  if (!after_digit || (guessed && leading_zero && value != 0)) return std::nullopt;
  return negative ? -value : value;
}

std::optional<Int> Truncated(double d) {
  if (!std::isfinite(d)) return std::nullopt;
  if (std::fabs(d) > 1e38) Fail("integer overflow: at most 128 bits are kept");
  return static_cast<Int>(d);
}

Value IntFilter(Interpreter&, const Value& value, const Args& args) {
  const Bound bound("int", args, {"default", "base"});
  const Value otherwise = bound[0] == nullptr ? Value::Integer(0) : *bound[0];
  if (value.is_undefined()) Fail(value.undefined_message());
  std::optional<Int> out;
  if (value.is_integral()) {
    out = value.integer();
  } else if (value.is_float()) {
    // int(inf) is an OverflowError that the filter does not catch the first time.
    if (std::isinf(value.number())) Fail("cannot convert float infinity to integer");
    out = Truncated(value.number());
  } else if (value.is_string()) {
    out = ReadInt(value.text(), bound.Integer(1, 10));
    if (!out) {
      const std::optional<double> real = ReadFloat(value.text());
      if (real) out = Truncated(*real);
    }
  }
  return out ? Value::Integer(*out) : otherwise;
}

Value FloatFilter(Interpreter&, const Value& value, const Args& args) {
  const Bound bound("float", args, {"default"});
  const Value otherwise = bound[0] == nullptr ? Value::Float(0) : *bound[0];
  if (value.is_undefined()) Fail(value.undefined_message());
  if (value.is_number()) return Value::Float(value.number());
  if (!value.is_string()) return otherwise;
  const std::optional<double> real = ReadFloat(value.text());
  return real ? Value::Float(*real) : otherwise;
}

Value Abs(Interpreter&, const Value& value, const Args& args) {
  Bound("abs", args, {});
  if (value.is_undefined()) Fail(value.undefined_message());
  if (value.is_float()) return Value::Float(std::fabs(value.number()));
  if (!value.is_integral()) Fail(StrCat("bad operand type for abs(): '", TypeName(value), "'"));
  return value.integer() < 0 ? Negate(value) : Value::Integer(value.integer());
}

// Half to even, on the exact binary value, as Python does.
double RoundTo(double value, Int digits) {
  if (!std::isfinite(value) || digits > 320) return value;
  if (digits >= 0) {
    const std::string text = absl::StrFormat("%.*f", static_cast<int>(digits), value);
    return std::strtod(text.c_str(), nullptr);
  }
  if (digits < -308) return std::copysign(0.0, value);
  const double scale = std::pow(10.0, static_cast<double>(-digits));
  return std::nearbyint(value / scale) * scale;
}

Int RoundInteger(Int value, Int digits) {
  if (digits >= 0) return value;
  if (digits < -37) return 0;
  Int scale = 1;
  for (Int i = 0; i < -digits; ++i) scale *= 10;
  Int rest = value % scale;
  if (rest < 0) rest += scale;
  const Int low = value - rest;
  const bool up = rest * 2 > scale || (rest * 2 == scale && (low / scale) % 2 != 0);
  return up ? low + scale : low;
}

Value Round(Interpreter&, const Value& value, const Args& args) {
  const Bound bound("round", args, {"precision", "method"});
  const Int precision = bound.Integer(0, 0);
  const std::string method = bound.Text(1).value_or("common");
  if (method != "common" && method != "ceil" && method != "floor") Fail("method must be common, ceil or floor");
  if (value.is_undefined()) Fail(value.undefined_message());
  if (!value.is_number()) Fail(StrCat("type ", TypeName(value), " doesn't define __round__ method"));
  if (method == "common") {
    if (value.is_integral()) return Value::Integer(RoundInteger(value.integer(), precision));
    return Value::Float(RoundTo(value.number(), precision));
  }
  const Value scale = BinaryOperation("**", Value::Integer(10), Value::Integer(precision));
  const double scaled = BinaryOperation("*", value, scale).number();
  if (!std::isfinite(scaled)) Fail("cannot convert float infinity or nan to integer");
  return Value::Float((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / scale.number());
}

Value FileSize(Interpreter&, const Value& value, const Args& args) {
  const Bound bound("filesizeformat", args, {"binary"});
  const bool binary = bound.Truth(0, false);
  const std::optional<double> read = value.is_string() ? ReadFloat(value.text()) : std::nullopt;
  if (!read && !value.is_number()) {
    Fail(StrCat("filesizeformat: ", value.is_string() ? StringRepr(value.text()) : TypeName(value), " is no number"));
  }
  const double bytes = read ? *read : value.number();
  const double base = binary ? 1024 : 1000;
  if (bytes == 1) return Value::String("1 Byte");
  if (bytes < base) return Value::String(absl::StrFormat("%d Bytes", static_cast<int64_t>(bytes)));
  static constexpr std::string_view kPrefixes = "kMGTPEZY";
  double unit = base;
  size_t i = 0;
  for (; i + 1 < kPrefixes.size() && bytes >= unit * base; ++i) unit *= base;
  const std::string prefix =
      binary ? StrCat(i == 0 ? "K" : std::string(1, kPrefixes[i]), "iB") : std::string(1, kPrefixes[i]) + "B";
  return Value::String(absl::StrFormat("%.1f %s", bytes / unit, prefix));
}

template <const char* Name, const char* Why>
Value NotOffered(Interpreter&, const Value&, const Args&) {
  Fail(StrCat("the filter '", Name, "' is not offered: ", Why));
}
constexpr char kRandom[] = "random", kRandomWhy[] = "a chat's text must not depend on chance";
constexpr char kUrlize[] = "urlize", kUrlizeWhy[] = "it writes HTML";
constexpr char kPprint[] = "pprint", kPprintWhy[] = "use tojson(indent=...)";

}  // namespace

std::vector<NamedFilter> NumberFilters() {
  return {{"abs", Abs},
          {"filesizeformat", FileSize},
          {"float", FloatFilter},
          {"int", IntFilter},
          {"pprint", NotOffered<kPprint, kPprintWhy>},
          {"random", NotOffered<kRandom, kRandomWhy>},
          {"round", Round},
          {"urlize", NotOffered<kUrlize, kUrlizeWhy>}};
}

Filter FindFilter(std::string_view name) {
  static const auto& filters = *[] {
    auto* table = new absl::flat_hash_map<std::string_view, Filter>;
    for (const auto& part : {TextFilters(), SequenceFilters(), NumberFilters()}) {
      for (const NamedFilter& entry : part) table->emplace(entry.name, entry.filter);
    }
    return table;
  }();
  const auto it = filters.find(name);
  return it == filters.end() ? nullptr : it->second;
}

std::string UnknownFilter(std::string_view name) {
  return StrCat("there is no filter named '", name, "'");
}

}  // namespace manta::chat_template
