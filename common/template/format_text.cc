// str.format: replacement fields with attributes, items, conversions and nested specifications.
#include "absl/strings/numbers.h"
#include "common/base/strings.h"
#include "common/template/builtins.h"
#include "common/template/interpreter.h"
#include "common/template/python_format.h"
#include "common/template/text_methods.h"

namespace manta::chat_template {
namespace {

class Formatter {
 public:
  Formatter(Interpreter& interpreter, const Args& args, bool markup)
      : interpreter_(interpreter), args_(args), markup_(markup) {}

  std::string Run(std::string_view format, int nesting) {
    if (nesting > 2) Fail("Max string recursion exceeded");
    std::string out;
    for (size_t i = 0; i < format.size(); ++i) {
      const char c = format[i];
      if (c != '{' && c != '}') {
        out.push_back(c);
      } else if (i + 1 < format.size() && format[i + 1] == c) {
        out.push_back(c);
        ++i;
      } else if (c == '}') {
        Fail("Single '}' encountered in format string");
      } else {
        const size_t end = FieldEnd(format, i);
        out += Field(format.substr(i + 1, end - i - 1), nesting);
        i = end;
      }
    }
    return out;
  }

 private:
  static size_t FieldEnd(std::string_view format, size_t open) {
    int depth = 0;
    for (size_t i = open; i < format.size(); ++i) {
      if (format[i] == '{') ++depth;
      if (format[i] == '}' && --depth == 0) return i;
    }
    Fail("expected '}' before end of string");
  }

  std::string Field(std::string_view field, int nesting) {
    std::string_view name = field, spec;
    char conversion = 0;
    size_t bracket = 0;
    for (size_t i = 0; i < field.size(); ++i) {
      if (field[i] == '[') bracket = 1;
      if (field[i] == ']') bracket = 0;
      if (bracket != 0 || (field[i] != '!' && field[i] != ':')) continue;
      name = field.substr(0, i);
      if (field[i] == '!') {
        if (i + 1 >= field.size()) Fail("end of string while looking for conversion specifier");
        conversion = field[i + 1];
        if (i + 2 < field.size() && field[i + 2] != ':') Fail("expected ':' after conversion specifier");
        spec = i + 3 <= field.size() ? field.substr(std::min(i + 3, field.size())) : std::string_view();
      } else {
        spec = field.substr(i + 1);
      }
      break;
    }
    Value value = Lookup(name);
    if (conversion == 's') {
      value = Value::String(Str(value));
    } else if (conversion == 'r' || conversion == 'a') {
      value = Value::String(Repr(value));
    } else if (conversion != 0) {
      Fail(StrCat("Unknown conversion specifier ", std::string(1, conversion)));
    }
    const std::string full_spec = Run(spec, nesting + 1);
    if (!markup_) return FormatValue(value, full_spec);
    return full_spec.empty() ? EscapeHtml(value) : EscapeHtml(Value::String(FormatValue(value, full_spec)));
  }

  Value Lookup(std::string_view name) {
    const size_t end = std::min(name.find_first_of(".["), name.size());
    Value value = First(name.substr(0, end));
    for (size_t i = end; i < name.size();) {
      if (name[i] == '.') {
        const size_t stop = std::min(name.find_first_of(".[", i + 1), name.size());
        if (stop == i + 1) Fail("Empty attribute in format string");
        value = interpreter_.Attribute(value, std::string(name.substr(i + 1, stop - i - 1)));
        i = stop;
      } else if (name[i] == '[') {
        const size_t close = name.find(']', i);
        if (close == std::string_view::npos) Fail("Missing ']' in format string");
        const std::string key(name.substr(i + 1, close - i - 1));
        int64_t index;
        const bool number = !key.empty() && key[0] != '-' && absl::SimpleAtoi(key, &index);
        value = interpreter_.Item(value, number ? Value::Integer(index) : Value::String(key));
        i = close + 1;
      } else {
        Fail("Only '.' or '[' may follow ']' in format field specifier");
      }
    }
    return value;
  }

  Value First(std::string_view name) {
    int64_t index;
    if (name.empty()) {
      index = automatic_++;
    } else if (!absl::SimpleAtoi(std::string(name), &index)) {
      for (const auto& [key, value] : args_.named) {
        if (key == name) return value;
      }
      Fail(StringRepr(name));
    }
    if (index < 0 || index >= static_cast<int64_t>(args_.positional.size())) {
      Fail(StrCat("Replacement index ", index, " out of range for positional args tuple"));
    }
    return args_.positional[static_cast<size_t>(index)];
  }

  Interpreter& interpreter_;
  const Args& args_;
  bool markup_;
  int64_t automatic_ = 0;
};

}  // namespace

std::string FormatText(Interpreter& interpreter, const Value& format, const Args& args) {
  ChargeBytes(format.text().size());
  return Formatter(interpreter, args, format.is_markup()).Run(format.text(), 0);
}

}  // namespace manta::chat_template
