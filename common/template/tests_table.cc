// The tests of `is`.
#include <cmath>

#include "absl/container/flat_hash_map.h"
#include "common/base/strings.h"
#include "common/template/builtins.h"
#include "common/template/interpreter.h"
#include "common/template/python_format.h"
#include "common/template/text.h"

namespace manta::chat_template {
namespace {

const Value& Other(std::string_view name, const Args& args) {
  return *Bound(name, args, {"other"}, 1)[0];
}

Value Modulo(const Value& value, const Value& by) {
  return BinaryOperation("%", value, by);
}

template <bool (*F)(const Value&)>
bool Plain(Interpreter&, const Value& value, const Args& args) {
  Bound("the test", args, {});
  return F(value);
}

bool IsDefined(const Value& v) {
  return !v.is_undefined();
}
bool IsUndefined(const Value& v) {
  return v.is_undefined();
}
bool IsNone(const Value& v) {
  return v.is_none();
}
bool IsBoolean(const Value& v) {
  return v.is_bool();
}
bool IsFalse(const Value& v) {
  return v.is_bool() && v.integer() == 0;
}
bool IsTrueTest(const Value& v) {
  return v.is_bool() && v.integer() != 0;
}
bool IsInteger(const Value& v) {
  return v.is_int();
}
bool IsFloat(const Value& v) {
  return v.is_float();
}
bool IsNumber(const Value& v) {
  return v.is_number();
}
bool IsString(const Value& v) {
  return v.is_string();
}
bool IsMapping(const Value& v) {
  return v.is_dict();
}
bool IsLowerTest(const Value& v) {
  return IsLowerText(Str(v));
}
bool IsUpperTest(const Value& v) {
  return IsUpperText(Str(v));
}
bool IsSequence(const Value& v) {
  return v.is_undefined() || v.is_string() || v.is_sequence() || v.is_dict() ||
         (v.is_object() && TypeName(v) == "range");
}
bool IsIterable(const Value& v) {
  return TryIterate(v).has_value();
}
bool IsCallable(const Value& v) {
  return v.is_undefined() || (v.is_object() && v.object().IsCallable());
}
bool IsEscaped(const Value& v) {
  return v.is_markup();
}
bool IsOdd(const Value& v) {
  return Equals(Modulo(v, Value::Integer(2)), Value::Integer(1));
}
bool IsEven(const Value& v) {
  return Equals(Modulo(v, Value::Integer(2)), Value::Integer(0));
}
bool IsFilter(const Value& v) {
  return v.is_string() && FindFilter(v.text()) != nullptr;
}
bool IsTest(const Value& v) {
  return v.is_string() && FindTest(v.text()) != nullptr;
}

bool DivisibleBy(Interpreter&, const Value& v, const Args& args) {
  return Equals(Modulo(v, *Bound("divisibleby", args, {"num"}, 1)[0]), Value::Integer(0));
}
bool SameAs(Interpreter&, const Value& v, const Args& args) {
  return IsSame(v, Other("sameas", args));
}
bool In(Interpreter&, const Value& v, const Args& args) {
  return Contains(*Bound("in", args, {"seq"}, 1)[0], v);
}
bool Equal(Interpreter&, const Value& v, const Args& args) {
  return Equals(v, Other("==", args));
}
bool NotEqual(Interpreter&, const Value& v, const Args& args) {
  return !Equals(v, Other("!=", args));
}
bool LessThan(Interpreter&, const Value& v, const Args& args) {
  return Less(v, Other("<", args), "<");
}
bool GreaterThan(Interpreter&, const Value& v, const Args& args) {
  return Less(Other(">", args), v, ">");
}
bool IsNan(const Value& v) {
  return v.is_float() && std::isnan(v.number());
}
bool LessOrEqual(Interpreter&, const Value& v, const Args& args) {
  const Value& other = Other("<=", args);
  return !Less(other, v, "<=") && !IsNan(v) && !IsNan(other);
}
bool GreaterOrEqual(Interpreter&, const Value& v, const Args& args) {
  const Value& other = Other(">=", args);
  return !Less(v, other, ">=") && !IsNan(v) && !IsNan(other);
}

}  // namespace

Test FindTest(std::string_view name) {
  static const auto& tests = *new absl::flat_hash_map<std::string_view, Test>{{"boolean", Plain<IsBoolean>},
                                                                              {"callable", Plain<IsCallable>},
                                                                              {"defined", Plain<IsDefined>},
                                                                              {"divisibleby", DivisibleBy},
                                                                              {"escaped", Plain<IsEscaped>},
                                                                              {"even", Plain<IsEven>},
                                                                              {"false", Plain<IsFalse>},
                                                                              {"filter", Plain<IsFilter>},
                                                                              {"float", Plain<IsFloat>},
                                                                              {"in", In},
                                                                              {"integer", Plain<IsInteger>},
                                                                              {"iterable", Plain<IsIterable>},
                                                                              {"lower", Plain<IsLowerTest>},
                                                                              {"mapping", Plain<IsMapping>},
                                                                              {"none", Plain<IsNone>},
                                                                              {"number", Plain<IsNumber>},
                                                                              {"odd", Plain<IsOdd>},
                                                                              {"sameas", SameAs},
                                                                              {"sequence", Plain<IsSequence>},
                                                                              {"string", Plain<IsString>},
                                                                              {"test", Plain<IsTest>},
                                                                              {"true", Plain<IsTrueTest>},
                                                                              {"undefined", Plain<IsUndefined>},
                                                                              {"upper", Plain<IsUpperTest>},
                                                                              {"==", Equal},
                                                                              {"eq", Equal},
                                                                              {"equalto", Equal},
                                                                              {"!=", NotEqual},
                                                                              {"ne", NotEqual},
                                                                              {"<", LessThan},
                                                                              {"lt", LessThan},
                                                                              {"lessthan", LessThan},
                                                                              {">", GreaterThan},
                                                                              {"gt", GreaterThan},
                                                                              {"greaterthan", GreaterThan},
                                                                              {"<=", LessOrEqual},
                                                                              {"le", LessOrEqual},
                                                                              {">=", GreaterOrEqual},
                                                                              {"ge", GreaterOrEqual}};
  const auto it = tests.find(name);
  return it == tests.end() ? nullptr : it->second;
}

std::string UnknownTest(std::string_view name) {
  return StrCat("there is no test named '", name, "'");
}

}  // namespace manta::chat_template
