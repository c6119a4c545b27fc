#include "common/template/text_methods.h"

#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "common/base/strings.h"
#include "common/template/builtins.h"
#include "common/template/interpreter.h"
#include "common/template/python_format.h"
#include "common/template/text.h"

namespace manta::chat_template {
namespace {

Value Same(const Value& self, std::string text) {
  return Value::String(std::move(text), self.is_markup());
}

std::string Needed(const Bound& bound, size_t i, std::string_view method) {
  std::optional<std::string> text = bound.Text(i);
  if (!text) Fail(StrCat(method, ": a string is needed, not None"));
  return *std::move(text);
}

// What a Markup's method takes in is escaped first.
std::string Escaped(const Value& self, std::string text) {
  return self.is_markup() ? EscapeHtml(Value::String(std::move(text))) : std::move(text);
}

// The bytes of self from `start` to `stop`, counted in code points; `offset` is where they begin, in code points.
std::string_view Window(const Value& self, const Bound& bound, size_t first, Int* offset, bool* valid) {
  const Int length = static_cast<Int>(*Length(self));
  auto clamp = [&](Int at) { return std::max<Int>(0, at < 0 ? at + length : at); };
  const Int start = clamp(bound.Integer(first, 0));
  const Int stop = std::min<Int>(length, clamp(bound.Integer(first + 1, length)));
  *offset = start;
  *valid = start <= length && start <= stop;
  if (!*valid) return {};
  std::string_view text = self.text();
  if (self.is_ascii()) return text.substr(static_cast<size_t>(start), static_cast<size_t>(stop - start));
  size_t begin = 0;
  for (Int i = 0; i < start; ++i) NextCodePoint(text, &begin);
  size_t end = begin;
  for (Int i = start; i < stop; ++i) NextCodePoint(text, &end);
  return text.substr(begin, end - begin);
}

Int Find(const Value& self, const Args& args, std::string_view method, bool last) {
  const Bound bound(method, args, {"sub", "start", "end"}, 1);
  const std::string sub = Needed(bound, 0, method);
  Int offset = 0;
  bool valid = false;
  const std::string_view text = Window(self, bound, 1, &offset, &valid);
  ChargeBytes(text.size());
  const size_t at = !valid ? std::string_view::npos : last ? text.rfind(sub) : text.find(sub);
  if (at == std::string_view::npos) return -1;
  return offset + static_cast<Int>(CodePointCount(text.substr(0, at)));
}

Value FindFirst(Interpreter&, const Value& self, const Args& args) {
  return Value::Integer(Find(self, args, "find", false));
}
Value FindLast(Interpreter&, const Value& self, const Args& args) {
  return Value::Integer(Find(self, args, "rfind", true));
}
Value Index(Interpreter&, const Value& self, const Args& args) {
  const Int at = Find(self, args, "index", false);
  if (at < 0) Fail("substring not found");
  return Value::Integer(at);
}
Value IndexLast(Interpreter&, const Value& self, const Args& args) {
  const Int at = Find(self, args, "rindex", true);
  if (at < 0) Fail("substring not found");
  return Value::Integer(at);
}

Value Count(Interpreter&, const Value& self, const Args& args) {
  const Bound bound("count", args, {"sub", "start", "end"}, 1);
  const std::string sub = Needed(bound, 0, "count");
  Int offset = 0;
  bool valid = false;
  const std::string_view text = Window(self, bound, 1, &offset, &valid);
  ChargeBytes(text.size());
  if (!valid) return Value::Integer(0);
  if (sub.empty()) return Value::Integer(static_cast<Int>(CodePointCount(text)) + 1);
  Int count = 0;
  for (size_t at = text.find(sub); at != std::string_view::npos; at = text.find(sub, at + sub.size())) ++count;
  return Value::Integer(count);
}

Value Affix(const Value& self, const Args& args, std::string_view method, bool prefix) {
  const Bound bound(method, args, {"affix", "start", "end"}, 1);
  Int offset = 0;
  bool valid = false;
  const std::string_view text = Window(self, bound, 1, &offset, &valid);
  auto has = [&](const Value& affix) {
    if (affix.is_undefined()) Fail(affix.undefined_message());
    if (!affix.is_string()) Fail(StrCat(method, " first arg must be str or a tuple of str, not ", TypeName(affix)));
    return valid && (prefix ? text.starts_with(affix.text()) : text.ends_with(affix.text()));
  };
  if (!bound[0]->is_tuple()) return Value::Bool(has(*bound[0]));
  for (const Value& affix : bound[0]->items()) {
    if (has(affix)) return Value::Bool(true);
  }
  return Value::Bool(false);
}
Value StartsWith(Interpreter&, const Value& self, const Args& args) {
  return Affix(self, args, "startswith", true);
}
Value EndsWith(Interpreter&, const Value& self, const Args& args) {
  return Affix(self, args, "endswith", false);
}

Value StripMethod(const Value& self, const Args& args, std::string_view name, bool left, bool right) {
  const Bound bound(name, args, {"chars"});
  return Same(self, Strip(self.text(), bound.Text(0), left, right));
}
Value StripBoth(Interpreter&, const Value& self, const Args& args) {
  return StripMethod(self, args, "strip", true, true);
}
Value LStrip(Interpreter&, const Value& self, const Args& args) {
  return StripMethod(self, args, "lstrip", true, false);
}
Value RStrip(Interpreter&, const Value& self, const Args& args) {
  return StripMethod(self, args, "rstrip", false, true);
}

Value Replace(Interpreter&, const Value& self, const Args& args) {
  const Bound bound("replace", args, {"old", "new", "count"}, 2);
  return Same(self, ReplaceText(self.text(), Needed(bound, 0, "replace"), Escaped(self, Needed(bound, 1, "replace")),
                                bound.Integer(2, -1)));
}

Value ToList(const Value& self, const std::vector<std::string_view>& parts) {
  std::vector<Value> out;
  for (std::string_view part : parts) out.push_back(Same(self, std::string(part)));
  return Value::List(std::move(out));
}

Value Split(Interpreter&, const Value& self, const Args& args) {
  const Bound bound("split", args, {"sep", "maxsplit"});
  const std::optional<std::string> separator = bound.Text(0);
  Int left = bound.Integer(1, -1);
  std::string_view text = self.text();
  ChargeBytes(text.size());
  std::vector<std::string_view> parts;
  if (separator) {
    if (separator->empty()) Fail("empty separator");
    for (size_t at; left != 0 && (at = text.find(*separator)) != std::string_view::npos; --left) {
      parts.push_back(text.substr(0, at));
      text.remove_prefix(at + separator->size());
    }
    parts.push_back(text);
    return ToList(self, parts);
  }
  for (text = StripLeft(text); !text.empty(); text = StripLeft(text), --left) {
    if (left == 0) {
      parts.push_back(text);
      break;
    }
    size_t end = 0;
    while (end < text.size()) {
      size_t next = end;
      if (IsSpace(NextCodePoint(text, &next))) break;
      end = next;
    }
    parts.push_back(text.substr(0, end));
    text.remove_prefix(end);
  }
  return ToList(self, parts);
}

Value RSplit(Interpreter&, const Value& self, const Args& args) {
  const Bound bound("rsplit", args, {"sep", "maxsplit"});
  const std::optional<std::string> separator = bound.Text(0);
  Int left = bound.Integer(1, -1);
  std::string_view text = self.text();
  ChargeBytes(text.size());
  std::vector<std::string_view> parts;
  if (separator) {
    if (separator->empty()) Fail("empty separator");
    for (size_t at; left != 0 && (at = text.rfind(*separator)) != std::string_view::npos; --left) {
      parts.push_back(text.substr(at + separator->size()));
      text = text.substr(0, at);
    }
    parts.push_back(text);
  } else {
    for (text = StripRight(text); !text.empty(); text = StripRight(text), --left) {
      if (left == 0) {
        parts.push_back(text);
        break;
      }
      size_t begin = text.size();
      while (begin > 0) {
        size_t before = begin - 1;
        while (before > 0 && (static_cast<unsigned char>(text[before]) & 0xC0) == 0x80) --before;
        size_t pos = before;
        if (IsSpace(NextCodePoint(text, &pos))) break;
        begin = before;
      }
      parts.push_back(text.substr(begin));
      text = text.substr(0, begin);
    }
  }
  std::reverse(parts.begin(), parts.end());
  return ToList(self, parts);
}

Value SplitLinesMethod(Interpreter&, const Value& self, const Args& args) {
  const Bound bound("splitlines", args, {"keepends"});
  return ToList(self, SplitLines(self.text(), bound.Truth(0, false)));
}

Value PartitionAt(const Value& self, size_t at, const std::string& separator, bool last) {
  const std::string& text = self.text();
  if (at == std::string::npos) {
    return last ? Value::Tuple({Same(self, ""), Same(self, ""), self})
                : Value::Tuple({self, Same(self, ""), Same(self, "")});
  }
  return Value::Tuple(
      {Same(self, text.substr(0, at)), Same(self, separator), Same(self, text.substr(at + separator.size()))});
}
Value Partition(Interpreter&, const Value& self, const Args& args) {
  const std::string separator = Needed(Bound("partition", args, {"sep"}, 1), 0, "partition");
  if (separator.empty()) Fail("empty separator");
  return PartitionAt(self, self.text().find(separator), separator, false);
}
Value RPartition(Interpreter&, const Value& self, const Args& args) {
  const std::string separator = Needed(Bound("rpartition", args, {"sep"}, 1), 0, "rpartition");
  if (separator.empty()) Fail("empty separator");
  return PartitionAt(self, self.text().rfind(separator), separator, true);
}

Value Join(Interpreter&, const Value& self, const Args& args) {
  const Bound bound("join", args, {"iterable"}, 1);
  if (bound[0]->is_undefined()) return Same(self, "");
  std::string out;
  Int i = 0;
  Next next = Iterate(*bound[0]);
  while (std::optional<Value> item = next()) {
    if (i > 0) out += self.text();
    if (!item->is_string() && !self.is_markup()) {
      Fail(StrCat("sequence item ", IntText(i), ": expected str instance, ", TypeName(*item), " found"));
    }
    out += self.is_markup() ? EscapeHtml(*item) : item->text();
    ChargeBytes(item->is_string() ? item->text().size() + self.text().size() : 0);
    ++i;
  }
  return Same(self, std::move(out));
}

Value Format(Interpreter& interpreter, const Value& self, const Args& args) {
  return Same(self, FormatText(interpreter, self, args));
}
Value FormatMap(Interpreter& interpreter, const Value& self, const Args& args) {
  const Bound bound("format_map", args, {"mapping"}, 1);
  if (!bound[0]->is_dict()) Fail("format_map needs a mapping");
  Args named;
  for (const auto& [key, value] : bound[0]->dict().entries) {
    if (key.is_string()) named.named.emplace_back(key.text(), value);
  }
  return Same(self, FormatText(interpreter, self, named));
}

template <std::string (*F)(std::string_view)>
Value Map(Interpreter&, const Value& self, const Args& args) {
  Bound("the method", args, {});
  ChargeBytes(self.text().size());
  return Same(self, F(self.text()));
}

// True where the text is not empty and every character is of the class.
template <bool (*F)(char32_t)>
Value All(Interpreter&, const Value& self, const Args& args) {
  Bound("the method", args, {});
  const std::string& text = self.text();
  ChargeBytes(text.size());
  for (size_t pos = 0; pos < text.size();) {
    if (!F(NextCodePoint(text, &pos))) return Value::Bool(false);
  }
  return Value::Bool(!text.empty());
}
bool IsAlnum(char32_t code) {
  return IsAlpha(code) || IsNumeric(code);
}

Value IsUpperMethod(Interpreter&, const Value& self, const Args&) {
  return Value::Bool(IsUpperText(self.text()));
}
Value IsLowerMethod(Interpreter&, const Value& self, const Args&) {
  return Value::Bool(IsLowerText(self.text()));
}
Value IsAsciiMethod(Interpreter&, const Value& self, const Args&) {
  return Value::Bool(self.is_ascii());
}
Value IsPrintableMethod(Interpreter& interpreter, const Value& self, const Args& args) {
  return self.text().empty() ? Value::Bool(true) : All<IsPrintable>(interpreter, self, args);
}
Value IsTitleMethod(Interpreter&, const Value& self, const Args&) {
  const std::string& text = self.text();
  return Value::Bool(ToTitle(text) == text && ToLower(text) != ToUpper(text));
}
Value IsIdentifierMethod(Interpreter&, const Value& self, const Args&) {
  const std::string& text = self.text();
  bool ok = !text.empty();
  for (size_t pos = 0; ok && pos < text.size();) {
    const bool first = pos == 0;
    const char32_t code = NextCodePoint(text, &pos);
    ok = first ? IsIdentifierStart(code) : IsWord(code);
  }
  return Value::Bool(ok);
}

Value Justify(const Value& self, const Args& args, std::string_view method) {
  const Bound bound(method, args, {"width", "fillchar"}, 1);
  const std::string fill = Escaped(self, bound.Text(1).value_or(" "));
  const Int missing = bound.Integer(0, 0) - static_cast<Int>(*Length(self));
  if (method == "center") return Same(self, CenterText(self.text(), bound.Integer(0, 0), fill));
  if (CodePointCount(fill) != 1 && !self.is_markup()) Fail("The fill character must be exactly one character long");
  std::string padding;
  if (missing > 0) ChargeBytes(static_cast<size_t>(std::min<Int>(missing, Int{1} << 60)));
  for (Int i = 0; i < missing; ++i) padding += fill;
  return Same(self, method == "ljust" ? self.text() + padding : padding + self.text());
}
Value LJust(Interpreter&, const Value& self, const Args& args) {
  return Justify(self, args, "ljust");
}
Value RJust(Interpreter&, const Value& self, const Args& args) {
  return Justify(self, args, "rjust");
}
Value Center(Interpreter&, const Value& self, const Args& args) {
  return Justify(self, args, "center");
}

Value ZFill(Interpreter&, const Value& self, const Args& args) {
  const Bound bound("zfill", args, {"width"}, 1);
  const Int missing = bound.Integer(0, 0) - static_cast<Int>(*Length(self));
  if (missing <= 0) return self;
  ChargeBytes(static_cast<size_t>(std::min<Int>(missing, Int{1} << 60)));
  const std::string& text = self.text();
  const size_t sign = !text.empty() && (text[0] == '+' || text[0] == '-') ? 1 : 0;
  return Same(self, text.substr(0, sign) + std::string(static_cast<size_t>(missing), '0') + text.substr(sign));
}

Value RemovePrefix(Interpreter&, const Value& self, const Args& args) {
  const std::string prefix = Needed(Bound("removeprefix", args, {"prefix"}, 1), 0, "removeprefix");
  return self.text().starts_with(prefix) ? Same(self, self.text().substr(prefix.size())) : self;
}
Value RemoveSuffix(Interpreter&, const Value& self, const Args& args) {
  const std::string suffix = Needed(Bound("removesuffix", args, {"suffix"}, 1), 0, "removesuffix");
  if (suffix.empty() || !self.text().ends_with(suffix)) return self;
  return Same(self, self.text().substr(0, self.text().size() - suffix.size()));
}

Value ExpandTabs(Interpreter&, const Value& self, const Args& args) {
  const Bound bound("expandtabs", args, {"tabsize"});
  const Int size = std::min<Int>(bound.Integer(0, 8), 10000);
  std::string out;
  Int column = 0;
  for (std::string_view c : SplitCodePoints(self.text())) {
    if (c == "\t") {
      const Int spaces = size > 0 ? size - column % size : 0;
      ChargeBytes(static_cast<size_t>(spaces));
      out.append(static_cast<size_t>(spaces), ' ');
      column += spaces;
    } else {
      out += c;
      column = c == "\n" || c == "\r" ? 0 : column + 1;
    }
  }
  return Same(self, std::move(out));
}

}  // namespace

TextMethod FindTextMethod(std::string_view name) {
  static const auto& methods =
      *new absl::flat_hash_map<std::string_view, TextMethod>{{"capitalize", Map<Capitalize>},
                                                             {"casefold", Map<ToLower>},
                                                             {"center", Center},
                                                             {"count", Count},
                                                             {"endswith", EndsWith},
                                                             {"expandtabs", ExpandTabs},
                                                             {"find", FindFirst},
                                                             {"format", Format},
                                                             {"format_map", FormatMap},
                                                             {"index", Index},
                                                             {"isalnum", All<IsAlnum>},
                                                             {"isalpha", All<IsAlpha>},
                                                             {"isascii", IsAsciiMethod},
                                                             {"isdecimal", All<IsDecimal>},
                                                             {"isdigit", All<IsDigit>},
                                                             {"isidentifier", IsIdentifierMethod},
                                                             {"islower", IsLowerMethod},
                                                             {"isnumeric", All<IsNumeric>},
                                                             {"isprintable", IsPrintableMethod},
                                                             {"isspace", All<IsSpace>},
                                                             {"istitle", IsTitleMethod},
                                                             {"isupper", IsUpperMethod},
                                                             {"join", Join},
                                                             {"ljust", LJust},
                                                             {"lower", Map<ToLower>},
                                                             {"lstrip", LStrip},
                                                             {"partition", Partition},
                                                             {"removeprefix", RemovePrefix},
                                                             {"removesuffix", RemoveSuffix},
                                                             {"replace", Replace},
                                                             {"rfind", FindLast},
                                                             {"rindex", IndexLast},
                                                             {"rjust", RJust},
                                                             {"rpartition", RPartition},
                                                             {"rsplit", RSplit},
                                                             {"rstrip", RStrip},
                                                             {"split", Split},
                                                             {"splitlines", SplitLinesMethod},
                                                             {"startswith", StartsWith},
                                                             {"strip", StripBoth},
                                                             {"swapcase", Map<SwapCase>},
                                                             {"title", Map<ToTitle>},
                                                             {"upper", Map<ToUpper>},
                                                             {"zfill", ZFill}};
  const auto it = methods.find(name);
  return it == methods.end() ? nullptr : it->second;
}

}  // namespace manta::chat_template
