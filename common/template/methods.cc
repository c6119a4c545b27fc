// The methods of Python's str, list, tuple, dict, int and float that a template can call.
#include <algorithm>
#include <cmath>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "common/base/strings.h"
#include "common/template/builtins.h"
#include "common/template/interpreter.h"
#include "common/template/python_format.h"
#include "common/template/text.h"
#include "common/template/text_methods.h"

namespace manta::chat_template {
namespace {

using Method = Value (*)(Interpreter& interpreter, const Value& self, const Args& args);

Value Unsafe(const Value& object, const std::string& name) {
  return Value::Undefined(StrCat("access to attribute '", name, "' of '", TypeName(object),
                                 "' object is unsafe: templates change no values"));
}

Value Bind(const Value& self, const std::string& name, Method method) {
  if (self.depth() >= kMaxValueDepth - 1) Fail(StrCat("values nest more than ", kMaxValueDepth, " deep"));
  return MakeFunction(name,
                      [self, method](Interpreter& interpreter, Args args) { return method(interpreter, self, args); });
}

Value DictGet(Interpreter&, const Value& self, const Args& args) {
  const Bound bound("get", args, {"key", "default"}, 1);
  if (!args.named.empty()) Fail("get takes no keyword arguments");
  ValueHash()(*bound[0]);
  const Value* value = self.dict().Find(*bound[0]);
  return value != nullptr ? *value : bound[1] != nullptr ? *bound[1] : Value();
}

Value DictItems(Interpreter&, const Value& self, const Args& args) {
  Bound("items", args, {});
  return MakeDictView(self, "items");
}
Value DictKeys(Interpreter&, const Value& self, const Args& args) {
  Bound("keys", args, {});
  return MakeDictView(self, "keys");
}
Value DictValues(Interpreter&, const Value& self, const Args& args) {
  Bound("values", args, {});
  return MakeDictView(self, "values");
}
Value Copy(Interpreter&, const Value& self, const Args& args) {
  Bound("copy", args, {});
  return self.is_list() ? Value::List(self.items()) : Value::FromDict(std::make_shared<Dict>(self.dict()));
}
Value FromKeys(Interpreter&, const Value&, const Args& args) {
  const Bound bound("fromkeys", args, {"iterable", "value"}, 1);
  auto dict = std::make_shared<Dict>();
  for (const Value& key : ToVector(*bound[0])) dict->Set(key, bound[1] == nullptr ? Value() : *bound[1]);
  return Value::FromDict(std::move(dict));
}

Value SequenceCount(Interpreter&, const Value& self, const Args& args) {
  const Bound bound("count", args, {"value"}, 1);
  Int count = 0;
  for (const Value& item : self.items()) count += Equals(item, *bound[0]) ? 1 : 0;
  return Value::Integer(count);
}

Value SequenceIndex(Interpreter&, const Value& self, const Args& args) {
  const Bound bound("index", args, {"value", "start", "stop"}, 1);
  const Int size = static_cast<Int>(self.items().size());
  auto clamp = [&](Int at) { return std::max<Int>(0, std::min<Int>(at < 0 ? at + size : at, size)); };
  for (Int i = clamp(bound.Integer(1, 0)); i < clamp(bound.Integer(2, size)); ++i) {
    if (Equals(self.items()[static_cast<size_t>(i)], *bound[0])) return Value::Integer(i);
  }
  Fail(StrCat(Repr(*bound[0]), " is not in ", TypeName(self)));
}

Value BitLength(Interpreter&, const Value& self, const Args& args) {
  Bound("bit_length", args, {});
  Int bits = 0;
  for (Int rest = self.integer() < 0 ? -self.integer() : self.integer(); rest > 0; rest >>= 1) ++bits;
  return Value::Integer(bits);
}

Value IsIntegerMethod(Interpreter&, const Value& self, const Args& args) {
  Bound("is_integer", args, {});
  return Value::Bool(std::isfinite(self.number()) && std::floor(self.number()) == self.number());
}

std::optional<Value> NumberAttribute(const Value& self, const std::string& name) {
  if (name == "real") return self.is_bool() ? Value::Integer(self.integer()) : self;
  if (name == "imag") return self.is_float() ? Value::Float(0) : Value::Integer(0);
  if (name == "is_integer" && self.is_float()) return Bind(self, name, IsIntegerMethod);
  if (self.is_float()) return std::nullopt;
  if (name == "numerator") return Value::Integer(self.integer());
  if (name == "denominator") return Value::Integer(1);
  if (name == "bit_length") return Bind(self, name, BitLength);
  return std::nullopt;
}

}  // namespace

std::optional<Value> FindMethod(const Value& object, const std::string& name) {
  static const auto& dict_methods = *new absl::flat_hash_map<std::string_view, Method>{
      {"get", DictGet},       {"items", DictItems}, {"keys", DictKeys},
      {"values", DictValues}, {"copy", Copy},       {"fromkeys", FromKeys}};
  static const auto& list_methods = *new absl::flat_hash_map<std::string_view, Method>{
      {"count", SequenceCount}, {"index", SequenceIndex}, {"copy", Copy}};
  static const auto& dict_unsafe =
      *new absl::flat_hash_set<std::string_view>{"clear", "pop", "popitem", "setdefault", "update"};
  static const auto& list_unsafe = *new absl::flat_hash_set<std::string_view>{"append", "clear", "pop",    "reverse",
                                                                              "insert", "sort",  "extend", "remove"};
  switch (object.kind()) {
    case Value::Kind::kDict:
      if (dict_unsafe.contains(name)) return Unsafe(object, name);
      if (const auto it = dict_methods.find(name); it != dict_methods.end()) return Bind(object, name, it->second);
      return std::nullopt;
    case Value::Kind::kList:
      if (list_unsafe.contains(name)) return Unsafe(object, name);
      [[fallthrough]];
    case Value::Kind::kTuple:
      if (object.is_group() && (name == "grouper" || name == "list")) return object.items()[name == "list" ? 1 : 0];
      if (object.is_tuple() && name == "copy") return std::nullopt;
      if (const auto it = list_methods.find(name); it != list_methods.end()) return Bind(object, name, it->second);
      return std::nullopt;
    case Value::Kind::kString:
      if (TextMethod method = FindTextMethod(name)) return Bind(object, name, method);
      return std::nullopt;
    case Value::Kind::kBool:
    case Value::Kind::kInt:
    case Value::Kind::kFloat:
      return NumberAttribute(object, name);
    default:
      return std::nullopt;
  }
}

}  // namespace manta::chat_template
