// Filters over sequences and mappings. Those that Python makes generators of are lazy here too.
#include <algorithm>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "common/base/strings.h"
#include "common/template/builtins.h"
#include "common/template/interpreter.h"
#include "common/template/python_format.h"
#include "common/template/text.h"

namespace manta::chat_template {
namespace {

// "a.0.b" as the keys to go through.
std::vector<Value> AttributePath(const Value* attribute) {
  std::vector<Value> path;
  if (attribute == nullptr || attribute->is_none()) return path;
  if (!attribute->is_string()) return {*attribute};
  for (const std::string& part : std::vector<std::string>(absl::StrSplit(attribute->text(), '.'))) {
    int64_t index;
    const bool digits = !part.empty() && part.find_first_not_of("0123456789") == std::string::npos;
    path.push_back(digits && absl::SimpleAtoi(part, &index) ? Value::Integer(index) : Value::String(part));
  }
  return path;
}

Value Follow(Interpreter& interpreter, Value item, const std::vector<Value>& path, const Value* otherwise = nullptr) {
  for (const Value& key : path) {
    item = interpreter.Item(item, key);
    if (otherwise != nullptr && !otherwise->is_none() && item.is_undefined()) item = *otherwise;
  }
  return item;
}

Value IgnoreCase(const Value& value, bool case_sensitive) {
  return !case_sensitive && value.is_string() ? Value::String(ToLower(value.text())) : value;
}

Value First(Interpreter&, const Value& value, const Args& args) {
  Bound("first", args, {});
  const std::optional<Value> item = Iterate(value)();
  return item ? *item : Value::Undefined("No first item, sequence was empty.");
}

std::optional<Next> Reversed(const Value& value) {
  if (value.is_undefined()) return TryIterate(value);
  if (value.is_sequence() || value.is_string() || value.is_dict()) {
    return [items = ToVector(value), markup = value.is_markup(), i = size_t{0}]() mutable -> std::optional<Value> {
      if (i >= items.size()) return std::nullopt;
      ChargeSteps(1);
      const Value& item = items[items.size() - 1 - i++];
      return markup ? Value::String(item.text(), true) : item;
    };
  }
  if (value.is_object()) return value.object().IterateReversed();
  return std::nullopt;
}

Value Last(Interpreter&, const Value& value, const Args& args) {
  Bound("last", args, {});
  std::optional<Next> next = Reversed(value);
  if (!next) Fail(StrCat("'", TypeName(value), "' object is not reversible"));
  const std::optional<Value> item = (*next)();
  return item ? *item : Value::Undefined("No last item, sequence was empty.");
}

Value Reverse(Interpreter&, const Value& value, const Args& args) {
  Bound("reverse", args, {});
  if (value.is_string()) {
    std::string out;
    const auto letters = SplitCodePoints(value.text());
    for (auto it = letters.rbegin(); it != letters.rend(); ++it) out += *it;
    return Value::String(std::move(out), value.is_markup());
  }
  if (std::optional<Next> next = Reversed(value)) return MakeGenerator(*std::move(next), value.depth());
  std::vector<Value> items = ToVector(value);
  std::reverse(items.begin(), items.end());
  return Value::List(std::move(items));
}

Value ListFilter(Interpreter&, const Value& value, const Args& args) {
  Bound("list", args, {});
  return Value::List(ToVector(value));
}

Value LengthFilter(Interpreter&, const Value& value, const Args& args) {
  Bound("length", args, {});
  const std::optional<size_t> length = Length(value);
  if (!length) Fail(StrCat("object of type '", TypeName(value), "' has no len()"));
  return Value::Integer(static_cast<Int>(*length));
}

Value Items(Interpreter&, const Value& value, const Args& args) {
  Bound("items", args, {});
  return MakeGenerator(
      [value, i = size_t{0}]() mutable -> std::optional<Value> {
        if (value.is_undefined()) return std::nullopt;
        if (!value.is_dict()) Fail("Can only get item pairs from a mapping.");
        if (i >= value.dict().entries.size()) return std::nullopt;
        const auto& [key, item] = value.dict().entries[i++];
        return Value::Tuple({key, item});
      },
      value.depth());
}

Value Join(Interpreter& interpreter, const Value& value, const Args& args) {
  const Bound bound("join", args, {"d", "attribute"});
  const std::vector<Value> path = AttributePath(bound[1]);
  const Value separator = bound[0] == nullptr ? Value::String("") : *bound[0];
  std::vector<Value> items;
  bool markup = separator.is_markup();
  Next next = Iterate(value);
  while (std::optional<Value> item = next()) {
    items.push_back(Follow(interpreter, *item, path));
    markup = markup || items.back().is_markup();
  }
  markup = markup && interpreter.autoescape();
  std::string out;
  for (size_t i = 0; i < items.size(); ++i) {
    const size_t before = out.size();
    if (i > 0) out += markup ? EscapeHtml(separator) : Str(separator);
    out += markup ? EscapeHtml(items[i]) : Str(items[i]);
    ChargeBytes(out.size() - before);
  }
  return Value::String(std::move(out), markup);
}

struct Keyed {
  Value key;
  Value item;
};

std::vector<Value> Sorted(std::vector<Keyed> keyed, bool reverse) {
  std::stable_sort(keyed.begin(), keyed.end(), [reverse](const Keyed& a, const Keyed& b) {
    return reverse ? Less(b.key, a.key) : Less(a.key, b.key);
  });
  std::vector<Value> out;
  for (Keyed& k : keyed) out.push_back(std::move(k.item));
  return out;
}

Value Sort(Interpreter& interpreter, const Value& value, const Args& args) {
  const Bound bound("sort", args, {"reverse", "case_sensitive", "attribute"});
  const bool case_sensitive = bound.Truth(1, false);
  std::vector<std::vector<Value>> paths;
  if (bound[2] != nullptr && bound[2]->is_string()) {
    for (const std::string& part : std::vector<std::string>(absl::StrSplit(bound[2]->text(), ','))) {
      const Value one = Value::String(part);
      paths.push_back(AttributePath(&one));
    }
  } else {
    paths.push_back(AttributePath(bound[2]));
  }
  std::vector<Keyed> keyed;
  for (const Value& item : ToVector(value)) {
    std::vector<Value> key;
    for (const auto& path : paths) key.push_back(IgnoreCase(Follow(interpreter, item, path), case_sensitive));
    keyed.push_back({Value::List(std::move(key)), item});
  }
  return Value::List(Sorted(std::move(keyed), bound.Truth(0, false)));
}

Value DictSort(Interpreter&, const Value& value, const Args& args) {
  const Bound bound("dictsort", args, {"case_sensitive", "by", "reverse"});
  const std::string by = bound.Text(1).value_or("key");
  if (by != "key" && by != "value") Fail("You can only sort by either \"key\" or \"value\"");
  if (value.is_undefined()) Fail(value.undefined_message());
  if (!value.is_dict()) Fail(StrCat("'", TypeName(value), "' object has no attribute 'items'"));
  std::vector<Keyed> keyed;
  for (const auto& [key, item] : value.dict().entries) {
    keyed.push_back({IgnoreCase(by == "key" ? key : item, bound.Truth(0, false)), Value::Tuple({key, item})});
  }
  return Value::List(Sorted(std::move(keyed), bound.Truth(2, false)));
}

Value Unique(Interpreter& interpreter, const Value& value, const Args& args) {
  const Bound bound("unique", args, {"case_sensitive", "attribute"});
  auto seen = std::make_shared<absl::flat_hash_set<Value, ValueHash, ValueEqual>>();
  return MakeGenerator(
      [&interpreter, seen, path = AttributePath(bound[1]), sensitive = bound.Truth(0, false), value,
       next = std::optional<Next>()]() mutable -> std::optional<Value> {
        if (!next) next = Iterate(value);
        while (std::optional<Value> item = (*next)()) {
          if (seen->insert(IgnoreCase(Follow(interpreter, *item, path), sensitive)).second) return item;
        }
        return std::nullopt;
      },
      value.depth());
}

Value Extreme(Interpreter& interpreter, const Value& value, const Args& args, bool largest) {
  const Bound bound(largest ? "max" : "min", args, {"case_sensitive", "attribute"});
  const std::vector<Value> path = AttributePath(bound[1]);
  std::optional<Keyed> best;
  Next next = Iterate(value);
  while (std::optional<Value> item = next()) {
    Value key = IgnoreCase(Follow(interpreter, *item, path), bound.Truth(0, false));
    if (!best || (largest ? Less(best->key, key, ">") : Less(key, best->key))) best = Keyed{std::move(key), *item};
  }
  return best ? best->item : Value::Undefined("No aggregated item, sequence was empty.");
}
Value Min(Interpreter& interpreter, const Value& value, const Args& args) {
  return Extreme(interpreter, value, args, false);
}
Value Max(Interpreter& interpreter, const Value& value, const Args& args) {
  return Extreme(interpreter, value, args, true);
}

Value GroupBy(Interpreter& interpreter, const Value& value, const Args& args) {
  const Bound bound("groupby", args, {"attribute", "default", "case_sensitive"}, 1);
  const std::vector<Value> path = AttributePath(bound[0]);
  const bool sensitive = bound.Truth(2, false);
  std::vector<Keyed> keyed;
  for (const Value& item : ToVector(value)) {
    keyed.push_back({IgnoreCase(Follow(interpreter, item, path, bound[1]), sensitive), item});
  }
  const std::vector<Value> sorted = Sorted(std::move(keyed), false);
  std::vector<Value> groups, group;
  Value key;
  auto flush = [&] {
    if (group.empty()) return;
    const Value grouper = sensitive ? key : Follow(interpreter, group[0], path, bound[1]);
    groups.push_back(Value::Group(grouper, Value::List(std::exchange(group, {}))));
  };
  for (const Value& item : sorted) {
    Value item_key = IgnoreCase(Follow(interpreter, item, path, bound[1]), sensitive);
    if (!group.empty() && !Equals(item_key, key)) flush();
    if (group.empty()) key = std::move(item_key);
    group.push_back(item);
  }
  flush();
  return Value::List(std::move(groups));
}

Value Sum(Interpreter& interpreter, const Value& value, const Args& args) {
  const Bound bound("sum", args, {"attribute", "start"});
  const std::vector<Value> path = AttributePath(bound[0]);
  Value total = bound[1] == nullptr ? Value::Integer(0) : *bound[1];
  if (total.is_string()) Fail("sum() can't sum strings [use ''.join(seq) instead]");
  Next next = Iterate(value);
  while (std::optional<Value> item = next()) total = Add(total, Follow(interpreter, *item, path));
  return total;
}

// A generator over the list that `make` gives when it is first drawn on.
Value Lazily(std::function<Value()> make, int depth) {
  return MakeGenerator(
      [make = std::move(make), next = std::optional<Next>()]() mutable -> std::optional<Value> {
        if (!next) next = Iterate(make());
        return (*next)();
      },
      depth + 1);
}

Value Slices(const Value& value, const Args& args) {
  const Bound bound("slice", args, {"slices", "fill_with"}, 1);
  const Int slices = bound.Integer(0, 0);
  if (slices == 0) Fail("integer division or modulo by zero");
  const std::vector<Value> items = ToVector(value);
  const Int length = static_cast<Int>(items.size());
  std::vector<Value> out;
  Int begin = 0;
  for (Int i = 0; i < slices; ++i) {
    ChargeSteps(1);
    const Int size = length / slices + (i < length % slices ? 1 : 0);
    std::vector<Value> part(items.begin() + static_cast<std::ptrdiff_t>(begin),
                            items.begin() + static_cast<std::ptrdiff_t>(begin + size));
    begin += size;
    if (bound[1] != nullptr && !bound[1]->is_none() && i >= length % slices) part.push_back(*bound[1]);
    out.push_back(Value::List(std::move(part)));
  }
  return Value::List(std::move(out));
}

Value Batches(const Value& value, const Args& args) {
  const Bound bound("batch", args, {"linecount", "fill_with"}, 1);
  const Int size = bound.Integer(0, 0);
  std::vector<Value> out, part;
  Next next = Iterate(value);
  while (std::optional<Value> item = next()) {
    if (static_cast<Int>(part.size()) == size) out.push_back(Value::List(std::exchange(part, {})));
    part.push_back(*std::move(item));
  }
  if (!part.empty()) {
    const bool fill = bound[1] != nullptr && !bound[1]->is_none();
    while (fill && static_cast<Int>(part.size()) < size) {
      ChargeBytes(sizeof(Value));
      part.push_back(*bound[1]);
    }
    out.push_back(Value::List(std::move(part)));
  }
  return Value::List(std::move(out));
}

int DepthOf(const Value& value, const Args& args) {
  int depth = value.depth();
  for (const Value& arg : args.positional) depth = std::max(depth, arg.depth());
  for (const auto& [name, arg] : args.named) depth = std::max(depth, arg.depth());
  return depth;
}

Value SliceFilter(Interpreter&, const Value& value, const Args& args) {
  Bound("slice", args, {"slices", "fill_with"}, 1);
  return Lazily([value, args] { return Slices(value, args); }, DepthOf(value, args));
}
Value Batch(Interpreter&, const Value& value, const Args& args) {
  Bound("batch", args, {"linecount", "fill_with"}, 1);
  return Lazily([value, args] { return Batches(value, args); }, DepthOf(value, args));
}

Value MapFilter(Interpreter& interpreter, const Value& value, const Args& args) {
  std::function<Value(const Value&)> function;
  const bool by_attribute = args.positional.empty() && !args.named.empty();
  return MakeGenerator(
      [&interpreter, value, args, by_attribute, function,
       next = std::optional<Next>()]() mutable -> std::optional<Value> {
        if (!next) {
          if (!IsTrue(value)) {
            next = []() -> std::optional<Value> { return std::nullopt; };
          } else if (by_attribute) {
            const Bound bound("map", args, {"attribute", "default"}, 1);
            const Value otherwise = bound[1] == nullptr ? Value() : *bound[1];
            function = [&interpreter, path = AttributePath(bound[0]), otherwise](const Value& item) {
              return Follow(interpreter, item, path, &otherwise);
            };
            next = Iterate(value);
          } else {
            if (args.positional.empty() || !args.positional[0].is_string()) Fail("map requires a filter argument");
            Args rest = args;
            rest.positional.erase(rest.positional.begin());
            function = [&interpreter, name = args.positional[0].text(), rest](const Value& item) {
              return interpreter.ApplyFilter(name, item, rest);
            };
            next = Iterate(value);
          }
        }
        std::optional<Value> item = (*next)();
        if (!item) return std::nullopt;
        return function(*item);
      },
      DepthOf(value, args));
}

Value SelectOrReject(Interpreter& interpreter, const Value& value, const Args& args, bool keep, bool by_attribute) {
  return MakeGenerator(
      [&interpreter, value, args, keep, by_attribute, next = std::optional<Next>(), path = std::vector<Value>(),
       test = std::string(), rest = Args()]() mutable -> std::optional<Value> {
        if (!next) {
          if (!IsTrue(value)) {
            next = []() -> std::optional<Value> { return std::nullopt; };
          } else {
            if (by_attribute && args.positional.empty()) Fail("Missing parameter for attribute name");
            if (by_attribute) path = AttributePath(&args.positional[0]);
            const size_t first = by_attribute ? 1 : 0;
            if (args.positional.size() > first) {
              test = Str(args.positional[first]);
              rest.positional.assign(args.positional.begin() + static_cast<std::ptrdiff_t>(first) + 1,
                                     args.positional.end());
              rest.named = args.named;
            }
            next = Iterate(value);
          }
        }
        while (std::optional<Value> item = (*next)()) {
          const Value subject = Follow(interpreter, *item, path);
          const bool holds = test.empty() ? IsTrue(subject) : interpreter.ApplyTest(test, subject, rest);
          if (holds == keep) return item;
        }
        return std::nullopt;
      },
      DepthOf(value, args));
}
Value Select(Interpreter& i, const Value& v, const Args& a) {
  return SelectOrReject(i, v, a, true, false);
}
Value Reject(Interpreter& i, const Value& v, const Args& a) {
  return SelectOrReject(i, v, a, false, false);
}
Value SelectAttr(Interpreter& i, const Value& v, const Args& a) {
  return SelectOrReject(i, v, a, true, true);
}
Value RejectAttr(Interpreter& i, const Value& v, const Args& a) {
  return SelectOrReject(i, v, a, false, true);
}

Value Default(Interpreter&, const Value& value, const Args& args) {
  const Bound bound("default", args, {"default_value", "boolean"});
  if (value.is_undefined() || (bound.Truth(1, false) && !IsTrue(value))) {
    return bound[0] == nullptr ? Value::String("") : *bound[0];
  }
  return value;
}

Value Attr(Interpreter& interpreter, const Value& value, const Args& args) {
  const Bound bound("attr", args, {"name"}, 1);
  const std::string name = bound.Text(0).value_or("");
  if (value.is_dict() && !FindMethod(value, name)) {
    return Value::Undefined(StrCat("'dict object' has no attribute '", name, "'"));
  }
  return interpreter.Attribute(value, name);
}

}  // namespace

std::vector<NamedFilter> SequenceFilters() {
  return {{"attr", Attr},         {"batch", Batch},     {"count", LengthFilter},
          {"d", Default},         {"default", Default}, {"dictsort", DictSort},
          {"first", First},       {"groupby", GroupBy}, {"items", Items},
          {"join", Join},         {"last", Last},       {"length", LengthFilter},
          {"list", ListFilter},   {"map", MapFilter},   {"max", Max},
          {"min", Min},           {"reject", Reject},   {"rejectattr", RejectAttr},
          {"reverse", Reverse},   {"select", Select},   {"selectattr", SelectAttr},
          {"slice", SliceFilter}, {"sort", Sort},       {"sum", Sum},
          {"unique", Unique}};
}

}  // namespace manta::chat_template
