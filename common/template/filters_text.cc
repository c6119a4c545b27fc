// Filters that make text.
#include <algorithm>
#include <cmath>

#include "absl/strings/str_format.h"
#include "common/base/strings.h"
#include "common/template/builtins.h"
#include "common/template/interpreter.h"
#include "common/template/python_format.h"
#include "common/template/text.h"
#include "common/template/text_methods.h"

namespace manta::chat_template {
namespace {

// soft_str: text as it is, anything else through str().
Value Soft(const Value& value) {
  return value.is_string() ? value : Value::String(Str(value));
}

template <std::string (*F)(std::string_view)>
Value Map(Interpreter&, const Value& value, const Args& args) {
  Bound("the filter", args, {});
  const Value text = Soft(value);
  return Value::String(F(text.text()), text.is_markup());
}

// A word begins behind white space, - and opening brackets; unlike str.title it leaves apostrophes alone.
Value Title(Interpreter&, const Value& value, const Args& args) {
  Bound("title", args, {});
  std::string out, word;
  auto flush = [&] {
    if (word.empty()) return;
    const size_t first = SplitCodePoints(word)[0].size();
    out += ToUpper(std::string_view(word).substr(0, first)) + ToLower(std::string_view(word).substr(first));
    word.clear();
  };
  const std::string text = Str(value);
  for (size_t pos = 0; pos < text.size();) {
    const size_t begin = pos;
    const char32_t code = NextCodePoint(text, &pos);
    const std::string_view raw = std::string_view(text).substr(begin, pos - begin);
    if (code == '-' || code == '(' || code == '{' || code == '[' || code == '<' || IsSpace(code)) {
      flush();
      out += raw;
    } else {
      word += raw;
    }
  }
  flush();
  return Value::String(std::move(out));
}

Value Trim(Interpreter&, const Value& value, const Args& args) {
  const Bound bound("trim", args, {"chars"});
  const Value text = Soft(value);
  return Value::String(Strip(text.text(), bound.Text(0), true, true), text.is_markup());
}

Value Replace(Interpreter& interpreter, const Value& value, const Args& args) {
  const Bound bound("replace", args, {"old", "new", "count"}, 2);
  const bool escape = interpreter.autoescape();
  const std::string from = Str(*bound[0]);
  const std::string to = escape && value.is_markup() ? EscapeHtml(*bound[1]) : Str(*bound[1]);
  return Value::String(ReplaceText(Str(value), from, to, bound.Integer(2, -1)), escape && value.is_markup());
}

Value Center(Interpreter&, const Value& value, const Args& args) {
  const Bound bound("center", args, {"width"});
  const Value text = Soft(value);
  return Value::String(CenterText(text.text(), bound.Integer(0, 80), " "), text.is_markup());
}

Value Indent(Interpreter&, const Value& value, const Args& args) {
  const Bound bound("indent", args, {"width", "first", "blank"});
  if (value.is_undefined()) Fail(value.undefined_message());
  if (!value.is_string()) Fail(StrCat("indent: text is needed, not ", TypeName(value)));
  std::string indention;
  if (bound[0] != nullptr && bound[0]->is_string()) {
    indention = value.is_markup() ? EscapeHtml(*bound[0]) : bound[0]->text();
  } else {
    const Int width = std::max<Int>(0, bound.Integer(0, 4));
    ChargeBytes(static_cast<size_t>(std::min<Int>(width, Int{1} << 60)));
    indention.assign(static_cast<size_t>(width), ' ');
  }
  const bool blank = bound.Truth(2, false);
  const std::string text = value.text() + "\n";
  std::string out = bound.Truth(1, false) ? indention : "";
  bool first = true;
  for (std::string_view line : SplitLines(text)) {
    if (!first) {
      out += "\n";
      if (blank || !line.empty()) out += indention;
    }
    ChargeBytes(indention.size());
    first = false;
    out += line;
  }
  return Value::String(std::move(out), value.is_markup());
}

Value Truncate(Interpreter&, const Value& value, const Args& args) {
  const Bound bound("truncate", args, {"length", "killwords", "end", "leeway"});
  const Int length = bound.Integer(0, 255), leeway = bound.Integer(3, 5);
  const std::string end = bound.Text(2).value_or("...");
  const Int end_length = static_cast<Int>(CodePointCount(end));
  if (length < end_length)
    Fail(StrCat("truncate: expected length >= ", IntText(end_length), ", got ", IntText(length)));
  if (leeway < 0) Fail("truncate: expected leeway >= 0");
  const std::optional<size_t> given = Length(value);
  if (given && static_cast<Int>(*given) <= length + leeway) return value;
  if (!value.is_string()) Fail(StrCat("truncate: text is needed, not ", TypeName(value)));
  std::string cut = Slice(value, Value(), Value::Integer(length - end_length), Value()).text();
  if (!bound.Truth(1, false)) {
    const size_t space = cut.rfind(' ');
    if (space != std::string::npos) cut.resize(space);
  }
  return Value::String(cut + end, value.is_markup());
}

// Greedy filling, one source line at a time; words longer than a line are cut.
Value WordWrap(Interpreter&, const Value& value, const Args& args) {
  const Bound bound("wordwrap", args, {"width", "break_long_words", "wrapstring", "break_on_hyphens"});
  if (!value.is_string()) Fail(StrCat("wordwrap: text is needed, not ", TypeName(value)));
  const Int wanted = bound.Integer(0, 79);
  if (wanted <= 0) Fail("wordwrap: the width must be above 0");
  const size_t width = static_cast<size_t>(std::min<Int>(wanted, Int{1} << 40));
  const bool break_long = bound.Truth(1, true), hyphens = bound.Truth(3, true);
  const std::string wrap = bound.Text(2).value_or("\n");
  std::string out;
  bool first_line = true;
  for (std::string_view line : SplitLines(value.text())) {
    if (!first_line) out += wrap;
    first_line = false;
    std::vector<std::vector<std::string_view>> chunks;  // words and the spaces between them
    bool in_space = false;
    for (std::string_view c : SplitCodePoints(line)) {
      const bool space = c == " " || c == "\t" || c == "\x0b" || c == "\x0c";
      const bool after_hyphen =
          hyphens && !chunks.empty() && !in_space && chunks.back().size() > 1 && chunks.back().back() == "-";
      if (chunks.empty() || space != in_space || after_hyphen) chunks.emplace_back();
      in_space = space;
      chunks.back().push_back(c);
    }
    std::vector<std::vector<std::string_view>> current;
    size_t used = 0;
    bool any_line = false;
    auto is_space = [](const std::vector<std::string_view>& chunk) { return chunk[0] == " " || chunk[0] == "\t"; };
    auto flush = [&] {
      if (!current.empty() && is_space(current.back())) current.pop_back();
      if (!current.empty()) {
        if (any_line) out += wrap;
        any_line = true;
        for (const auto& chunk : current) {
          for (std::string_view c : chunk) out += c;
        }
      }
      current.clear();
      used = 0;
    };
    for (size_t i = 0; i < chunks.size();) {
      ChargeSteps(1);
      if (current.empty() && any_line && is_space(chunks[i])) {
        ++i;
        continue;
      }
      if (used + chunks[i].size() <= width) {
        used += chunks[i].size();
        current.push_back(chunks[i++]);
        continue;
      }
      if (chunks[i].size() > width && (break_long || current.empty())) {
        const size_t room = break_long ? width - used : chunks[i].size();
        current.emplace_back(chunks[i].begin(), chunks[i].begin() + static_cast<std::ptrdiff_t>(room));
        chunks[i].erase(chunks[i].begin(), chunks[i].begin() + static_cast<std::ptrdiff_t>(room));
        if (current.back().empty()) current.pop_back();
        if (chunks[i].empty()) ++i;
      }
      flush();
    }
    flush();
  }
  return Value::String(std::move(out), value.is_markup());
}

Value WordCount(Interpreter&, const Value& value, const Args& args) {
  Bound("wordcount", args, {});
  Int count = 0;
  bool in_word = false;
  const std::string text = Str(value);
  for (size_t pos = 0; pos < text.size();) {
    const bool word = IsWord(NextCodePoint(text, &pos));
    if (word && !in_word) ++count;
    in_word = word;
  }
  return Value::Integer(count);
}

Value FormatFilter(Interpreter&, const Value& value, const Args& args) {
  if (!args.positional.empty() && !args.named.empty())
    Fail("can't handle positional and keyword arguments at the same time");
  const Value text = Soft(value);
  if (args.named.empty()) return BinaryOperation("%", text, Value::Tuple(args.positional));
  auto dict = std::make_shared<Dict>();
  for (const auto& [name, item] : args.named) dict->Set(name, item);
  return BinaryOperation("%", text, Value::FromDict(std::move(dict)));
}

Value StringFilter(Interpreter&, const Value& value, const Args& args) {
  Bound("string", args, {});
  return Soft(value);
}
Value Safe(Interpreter&, const Value& value, const Args& args) {
  Bound("safe", args, {});
  return Value::String(Str(value), true);
}
Value Escape(Interpreter&, const Value& value, const Args& args) {
  Bound("escape", args, {});
  return Value::String(EscapeHtml(value), true);
}
Value ForceEscape(Interpreter&, const Value& value, const Args& args) {
  Bound("forceescape", args, {});
  return Value::String(EscapeHtml(Value::String(Str(value))), true);
}

Value StripTags(Interpreter&, const Value& value, const Args& args) {
  Bound("striptags", args, {});
  std::string text = Str(value);
  ChargeBytes(text.size());
  for (const auto& [open, close] : {std::pair<std::string_view, std::string_view>{"<!--", "-->"}, {"<", ">"}}) {
    std::string kept;
    size_t pos = 0;
    while (true) {
      const size_t begin = text.find(open, pos);
      const size_t end = begin == std::string::npos ? begin : text.find(close, begin + open.size());
      if (end == std::string::npos) break;
      kept.append(text, pos, begin - pos);
      pos = end + close.size();
    }
    text = kept + text.substr(pos);
  }
  std::string out;
  bool space = false;
  for (size_t pos = 0; pos < text.size();) {
    const size_t begin = pos;
    if (IsSpace(NextCodePoint(text, &pos))) {
      space = true;
      continue;
    }
    if (space && !out.empty()) out += ' ';
    space = false;
    out.append(text, begin, pos - begin);
  }
  for (const auto& [entity, c] : {std::pair<std::string_view, std::string_view>{"&lt;", "<"},
                                  {"&gt;", ">"},
                                  {"&#34;", "\""},
                                  {"&quot;", "\""},
                                  {"&#39;", "'"},
                                  {"&amp;", "&"}}) {
    out = ReplaceText(out, entity, c, -1);
  }
  return Value::String(std::move(out));
}

std::string UrlQuote(const Value& value, bool for_query) {
  std::string out;
  for (char c : Str(value)) {
    const bool plain = (c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z') || c == '_' || c == '.' ||
                       c == '-' || c == '~' || (c == '/' && !for_query);
    if (plain) {
      out.push_back(c);
    } else if (for_query && c == ' ') {
      out.push_back('+');
    } else {
      absl::StrAppendFormat(&out, "%%%02X", static_cast<unsigned>(static_cast<unsigned char>(c)));
    }
  }
  return out;
}

Value UrlEncode(Interpreter&, const Value& value, const Args& args) {
  Bound("urlencode", args, {});
  if (value.is_string() || !TryIterate(value)) return Value::String(UrlQuote(value, false));
  std::string out;
  auto put = [&](const Value& key, const Value& item) {
    if (!out.empty()) out += '&';
    out += UrlQuote(key, true) + "=" + UrlQuote(item, true);
  };
  if (value.is_dict()) {
    for (const auto& [key, item] : value.dict().entries) put(key, item);
  } else {
    for (const Value& pair : ToVector(value)) {
      const std::vector<Value> parts = ToVector(pair);
      if (parts.size() != 2) Fail("urlencode needs pairs");
      put(parts[0], parts[1]);
    }
  }
  return Value::String(std::move(out));
}

Value ToJsonFilter(Interpreter&, const Value& value, const Args& args) {
  const Bound bound("tojson", args, {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonOptions options;
  options.ensure_ascii = bound.Truth(0, false);
  options.sort_keys = bound.Truth(3, false);
  if (bound[1] != nullptr && bound[1]->is_string()) {
    options.indent = bound[1]->text();
  } else if (bound[1] != nullptr && !bound[1]->is_none()) {
    const Int width = std::max<Int>(0, bound.Integer(1, 0));
    ChargeBytes(static_cast<size_t>(std::min<Int>(width, Int{1} << 60)));
    options.indent = std::string(static_cast<size_t>(width), ' ');
  }
  if (options.indent) options.item_separator = ",";
  if (bound[2] != nullptr && !bound[2]->is_none()) {
    const std::vector<Value> pair = ToVector(*bound[2]);
    if (pair.size() != 2 || !pair[0].is_string() || !pair[1].is_string())
      Fail("tojson: separators must be two strings");
    options.item_separator = pair[0].text();
    options.key_separator = pair[1].text();
  }
  return Value::String(ToJson(value, options));
}

Value XmlAttributes(Interpreter& interpreter, const Value& value, const Args& args) {
  const Bound bound("xmlattr", args, {"autospace"});
  if (!value.is_dict()) Fail(StrCat("xmlattr: a mapping is needed, not ", TypeName(value)));
  std::string out;
  for (const auto& [key, item] : value.dict().entries) {
    if (item.is_none() || item.is_undefined()) continue;
    if (Str(key).find_first_of(" \t\n\r\f\v/>=") != std::string::npos)
      Fail(StrCat("Invalid character in attribute name: ", Repr(key)));
    out += StrCat(out.empty() ? "" : " ", EscapeHtml(key), "=\"", EscapeHtml(item), "\"");
  }
  if (!out.empty() && bound.Truth(0, true)) out.insert(0, " ");
  return Value::String(std::move(out), interpreter.autoescape());
}

}  // namespace

std::vector<NamedFilter> TextFilters() {
  return {{"capitalize", Map<Capitalize>},
          {"center", Center},
          {"e", Escape},
          {"escape", Escape},
          {"forceescape", ForceEscape},
          {"format", FormatFilter},
          {"indent", Indent},
          {"lower", Map<ToLower>},
          {"replace", Replace},
          {"safe", Safe},
          {"string", StringFilter},
          {"striptags", StripTags},
          {"title", Title},
          {"tojson", ToJsonFilter},
          {"trim", Trim},
          {"truncate", Truncate},
          {"upper", Map<ToUpper>},
          {"urlencode", UrlEncode},
          {"wordcount", WordCount},
          {"wordwrap", WordWrap},
          {"xmlattr", XmlAttributes}};
}

}  // namespace manta::chat_template
