#include "common/template/builtins.h"

#include <algorithm>
#include <ctime>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_format.h"
#include "common/base/strings.h"
#include "common/template/interpreter.h"
#include "common/template/objects.h"
#include "common/template/python_format.h"

namespace manta::chat_template {
namespace {

constexpr size_t kMaxRange = 100'000;  // the sandbox's own limit

class Function : public Object {
 public:
  Function(std::string name, Callable call) : name_(std::move(name)), call_(std::move(call)) {}
  std::string TypeName() const override { return "function"; }
  std::string Repr() const override { return StrCat("<function ", name_, ">"); }
  bool IsCallable() const override { return true; }
  Value Call(Interpreter& interpreter, Args args) override { return call_(interpreter, std::move(args)); }

 private:
  std::string name_;
  Callable call_;
};

class Generator : public Object {
 public:
  explicit Generator(Next next) : next_(std::make_shared<Next>(std::move(next))) {}
  std::string TypeName() const override { return "generator"; }
  std::optional<chat_template::Next> Iterate() override {
    return [next = next_] { return (*next)(); };
  }

 private:
  std::shared_ptr<Next> next_;
};

class DictView : public Object {
 public:
  DictView(Value dict, std::string kind) : dict_(std::move(dict)), kind_(std::move(kind)) { depth = dict_.depth() + 1; }
  std::string TypeName() const override { return StrCat("dict_", kind_); }
  std::string Repr() const override {
    return StrCat(TypeName(), "(", chat_template::Repr(Value::List(ToVector(*Iterate(false)))), ")");
  }
  std::optional<size_t> Length() override { return dict_.dict().entries.size(); }
  std::optional<Next> Iterate() override { return Iterate(false); }
  std::optional<Next> IterateReversed() override { return Iterate(true); }

 private:
  static std::vector<Value> ToVector(Next next) {
    std::vector<Value> out;
    while (std::optional<Value> value = next()) out.push_back(*std::move(value));
    return out;
  }
  std::optional<Next> Iterate(bool reversed) const {
    return [dict = dict_, kind = kind_[0], reversed, i = size_t{0}]() mutable -> std::optional<Value> {
      const auto& entries = dict.dict().entries;
      if (i >= entries.size()) return std::nullopt;
      ChargeSteps(1);
      const auto& [key, value] = entries[reversed ? entries.size() - 1 - i : i];
      ++i;
      return kind == 'k' ? key : kind == 'v' ? value : Value::Tuple({key, value});
    };
  }
  Value dict_;
  std::string kind_;
};

class Cycler : public Object {
 public:
  explicit Cycler(std::vector<Value> items) : items_(std::move(items)) {
    for (const Value& item : items_) depth = std::max(depth, item.depth() + 1);
  }
  std::string TypeName() const override { return "Cycler"; }
  std::optional<Value> GetAttribute(const std::string& name) override {
    if (name == "current") return items_[*position_ % items_.size()];
    if (name == "reset") {
      return MakeFunction("reset", [position = position_](Interpreter&, Args) { return *position = 0, Value(); });
    }
    if (name == "next") {
      return MakeFunction("next", [items = items_, position = position_](Interpreter&, Args) {
        return items[(*position)++ % items.size()];
      });
    }
    return std::nullopt;
  }

 private:
  std::vector<Value> items_;
  std::shared_ptr<size_t> position_ = std::make_shared<size_t>(0);
};

// `self`, through which templates that extend others reach blocks. There are none to reach here.
class TemplateReference : public Object {
 public:
  std::string TypeName() const override { return "TemplateReference"; }
  std::string Repr() const override { return "<TemplateReference None>"; }
};

// dict(pairs or mapping, name=value, ...), which namespace() takes as well.
std::shared_ptr<Dict> BuildDict(std::string_view function, const Args& args) {
  auto dict = std::make_shared<Dict>();
  if (args.positional.size() > 1) Fail(StrCat(function, " takes at most 1 positional argument"));
  if (!args.positional.empty()) {
    const Value& from = args.positional[0];
    if (from.is_dict()) {
      for (const auto& [key, value] : from.dict().entries) dict->Set(key, value);
    } else {
      Next next = Iterate(from);
      while (std::optional<Value> item = next()) {
        const std::vector<Value> pair = ToVector(*item);
        if (pair.size() != 2) Fail(StrCat(function, " needs pairs, not ", pair.size(), " elements"));
        dict->Set(pair[0], pair[1]);
      }
    }
  }
  for (const auto& [name, value] : args.named) dict->Set(name, value);
  return dict;
}

Value MakeRange(Interpreter&, Args args) {
  const auto& given = args.positional;
  if (given.empty() || given.size() > 3 || !args.named.empty()) Fail("range takes 1 to 3 positional arguments");
  for (const Value& value : given) {
    if (value.is_undefined()) Fail(value.undefined_message());
    if (!value.is_integral()) Fail(StrCat("'", TypeName(value), "' object cannot be interpreted as an integer"));
  }
  const Int start = given.size() > 1 ? given[0].integer() : 0;
  const Int stop = given.size() > 1 ? given[1].integer() : given[0].integer();
  const Int step = given.size() > 2 ? given[2].integer() : 1;
  if (step == 0) Fail("range() arg 3 must not be zero");
  constexpr Int kHuge = Int{1} << 100;
  for (Int bound : {start, stop, step}) {
    if (bound > kHuge || bound < -kHuge) Fail("range's arguments are too large");
  }
  auto range = std::make_shared<Range>(start, stop, step);
  if (*range->Length() > kMaxRange) Fail(StrCat("a range has more than ", kMaxRange, " items"));
  return Value::FromObject(std::move(range));
}

// strftime over a time without a zone, in the C locale.
std::string FormatTime(const CivilTime& now, const std::string& format) {
  std::tm tm{};
  tm.tm_year = now.year - 1900;
  tm.tm_mon = now.month - 1;
  tm.tm_mday = now.day;
  tm.tm_hour = now.hour;
  tm.tm_min = now.minute;
  tm.tm_sec = now.second;
  tm.tm_isdst = -1;
  std::tm noon = tm;
  noon.tm_hour = 12;
  noon.tm_isdst = 0;
  const std::time_t seconds = timegm(&noon);  // fills in the days of week and year
  std::tm filled{};
  gmtime_r(&seconds, &filled);
  tm.tm_wday = filled.tm_wday;
  tm.tm_yday = filled.tm_yday;
  static const locale_t c_locale = newlocale(LC_ALL_MASK, "C", nullptr);
  std::string out;
  for (size_t i = 0; i < format.size(); ++i) {
    if (format[i] != '%' || i + 1 >= format.size()) {
      out.push_back(format[i]);
      continue;
    }
    const char kind = format[++i];
    if (kind == 'f') {
      out += absl::StrFormat("%06d", now.microsecond);
    } else if (kind != 'z' && kind != 'Z') {
      std::string conversion = {'%', kind};
      if ((kind == '-' || kind == '_' || kind == '0' || kind == '^' || kind == '#' || kind == 'E' || kind == 'O') &&
          i + 1 < format.size()) {
        conversion.push_back(format[++i]);
      }
      char buffer[256];
      const size_t length = strftime_l(buffer, sizeof buffer, conversion.c_str(), &tm, c_locale);
      out.append(buffer, length);
    }
  }
  return out;
}

Value StrftimeNow(Interpreter& interpreter, Args args) {
  const Bound bound("strftime_now", args, {"format"}, 1);
  const std::optional<std::string> format = bound.Text(0);
  if (!format) Fail("strftime_now: the format must be a string");
  return Value::String(FormatTime(interpreter.now(), *format));
}

Value RaiseException(Interpreter&, Args args) {
  const Bound bound("raise_exception", args, {"message"}, 1);
  Fail(Str(*bound[0]));
}

Value MakeJoiner(Interpreter&, Args args) {
  const Bound bound("joiner", args, {"sep"});
  const Value separator = bound[0] == nullptr ? Value::String(", ") : *bound[0];
  return MakeFunction("joiner", [separator, used = std::make_shared<bool>(false)](Interpreter&, Args) {
    return std::exchange(*used, true) ? separator : Value::String("");
  });
}

}  // namespace

std::optional<Value> FindGlobal(std::string_view name) {
  if (name == "range") return MakeFunction("range", MakeRange);
  if (name == "raise_exception") return MakeFunction("raise_exception", RaiseException);
  if (name == "strftime_now") return MakeFunction("strftime_now", StrftimeNow);
  if (name == "joiner") return MakeFunction("joiner", MakeJoiner);
  if (name == "dict") {
    return MakeFunction("dict", [](Interpreter&, Args args) { return Value::FromDict(BuildDict("dict", args)); });
  }
  if (name == "namespace") {
    return MakeFunction("namespace", [](Interpreter& interpreter, Args args) {
      auto ns = std::make_shared<Namespace>(BuildDict("namespace", args));
      interpreter.Keep(ns);
      return Value::FromObject(std::move(ns));
    });
  }
  if (name == "cycler") {
    return MakeFunction("cycler", [](Interpreter&, Args args) {
      if (args.positional.empty()) Fail("at least one item has to be provided");
      return Value::FromObject(std::make_shared<Cycler>(std::move(args.positional)));
    });
  }
  if (name == "self") return Value::FromObject(std::make_shared<TemplateReference>());
  if (name == "lipsum") {
    return MakeFunction("lipsum",
                        [](Interpreter&, Args) -> Value { Fail("lipsum is not offered: its text is random"); });
  }
  return std::nullopt;
}

Value MakeFunction(std::string name, Callable call) {
  return Value::FromObject(std::make_shared<Function>(std::move(name), std::move(call)));
}

Value MakeGenerator(Next next, int depth) {
  auto generator = std::make_shared<Generator>(std::move(next));
  generator->depth = depth + 1;
  return Value::FromObject(std::move(generator));
}

Value MakeDictView(const Value& dict, std::string kind) {
  return Value::FromObject(std::make_shared<DictView>(dict, std::move(kind)));
}

Bound::Bound(std::string_view function, const Args& args, std::initializer_list<std::string_view> parameters,
             size_t required)
    : function_(function), parameters_(parameters), values_(parameters.size(), nullptr) {
  if (args.positional.size() > parameters_.size()) {
    Fail(StrCat(function, " takes at most ", parameters_.size(), " argument(s), ", args.positional.size(), " given"));
  }
  for (size_t i = 0; i < args.positional.size(); ++i) values_[i] = &args.positional[i];
  for (const auto& [name, value] : args.named) {
    const auto it = std::find(parameters_.begin(), parameters_.end(), name);
    if (it == parameters_.end()) Fail(StrCat(function, " takes no keyword argument '", name, "'"));
    const Value*& slot = values_[static_cast<size_t>(it - parameters_.begin())];
    if (slot != nullptr) Fail(StrCat(function, " got multiple values for argument '", name, "'"));
    slot = &value;
  }
  for (size_t i = 0; i < required; ++i) {
    if (values_[i] == nullptr) Fail(StrCat(function, " misses its argument '", parameters_[i], "'"));
  }
}

Int Bound::Integer(size_t i, Int otherwise) const {
  if (values_[i] == nullptr || values_[i]->is_none()) return otherwise;
  if (values_[i]->is_undefined()) Fail(values_[i]->undefined_message());
  if (!values_[i]->is_integral()) {
    Fail(StrCat(function_, ": '", parameters_[i], "' must be an integer, not ", TypeName(*values_[i])));
  }
  return values_[i]->integer();
}

bool Bound::Truth(size_t i, bool otherwise) const {
  return values_[i] == nullptr ? otherwise : IsTrue(*values_[i]);
}

std::optional<std::string> Bound::Text(size_t i) const {
  if (values_[i] == nullptr || values_[i]->is_none()) return std::nullopt;
  if (values_[i]->is_undefined()) Fail(values_[i]->undefined_message());
  if (!values_[i]->is_string()) {
    Fail(StrCat(function_, ": '", parameters_[i], "' must be a string, not ", TypeName(*values_[i])));
  }
  return values_[i]->text();
}

}  // namespace manta::chat_template
