// Arithmetic, joining and slicing.
#include <cmath>

#include "common/base/strings.h"
#include "common/template/interpreter.h"
#include "common/template/objects.h"
#include "common/template/python_format.h"
#include "common/template/text.h"

namespace manta::chat_template {
namespace {

[[noreturn]] void Unsupported(std::string_view op, const Value& a, const Value& b) {
  Fail(StrCat("unsupported operand type(s) for ", op, ": '", TypeName(a), "' and '", TypeName(b), "'"));
}

[[noreturn]] void Overflow() {
  Fail("integer overflow: at most 128 bits are kept");
}

Value Repeat(const Value& value, Int times) {
  const size_t count = times < 0 ? 0 : times > 1'000'000'000 ? 1'000'000'000 : static_cast<size_t>(times);
  if (value.is_string()) {
    ChargeBytes(count * value.text().size());
    std::string text;
    if (!value.text().empty()) {
      for (size_t i = 0; i < count; ++i) text += value.text();
    }
    return Value::String(std::move(text), value.is_markup());
  }
  ChargeBytes(count * value.items().size() * sizeof(Value));
  std::vector<Value> items;
  if (!value.items().empty()) {
    for (size_t i = 0; i < count; ++i) items.insert(items.end(), value.items().begin(), value.items().end());
  }
  return value.is_list() ? Value::List(std::move(items)) : Value::Tuple(std::move(items));
}

Int FloorDivide(Int a, Int b) {
  if (b == -1) {
    Int out;
    if (__builtin_sub_overflow(static_cast<Int>(0), a, &out)) Overflow();
    return out;
  }
  const Int quotient = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? quotient - 1 : quotient;
}

Int IntegerModulo(Int a, Int b) {
  if (b == -1) return 0;
  const Int rest = a % b;
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

double FloatModulo(double a, double b) {
  const double rest = std::fmod(a, b);
  if (rest == 0) return std::copysign(0.0, b);
  return (rest < 0) != (b < 0) ? rest + b : rest;
}

double FloatFloorDivide(double a, double b) {
  const double quotient = (a - FloatModulo(a, b)) / b;
  const double floor = std::floor(quotient);
  return quotient - floor > 0.5 ? floor + 1 : floor;
}

Value Power(const Value& a, const Value& b) {
  if (a.is_integral() && b.is_integral() && b.integer() >= 0) {
    Int result = 1, base = a.integer();
    for (Int exponent = b.integer(); exponent > 0; exponent >>= 1) {
      if ((exponent & 1) != 0 && __builtin_mul_overflow(result, base, &result)) Overflow();
      if (exponent > 1 && __builtin_mul_overflow(base, base, &base)) Overflow();
    }
    return Value::Integer(result);
  }
  const double x = a.number(), y = b.number();
  if (x == 0 && y < 0) Fail("0.0 cannot be raised to a negative power");
  if (x < 0 && y != std::floor(y)) Fail("a negative number to a fractional power is complex");
  const double result = std::pow(x, y);
  if (std::isinf(result) && std::isfinite(x) && std::isfinite(y)) Fail("Result too large");
  return Value::Float(result);
}

Value Arithmetic(const std::string& op, const Value& a, const Value& b) {
  const bool real = a.is_float() || b.is_float();
  Int out;
  switch (op[0]) {
    case '+':
      if (real) return Value::Float(a.number() + b.number());
      if (__builtin_add_overflow(a.integer(), b.integer(), &out)) Overflow();
      return Value::Integer(out);
    case '-':
      if (real) return Value::Float(a.number() - b.number());
      if (__builtin_sub_overflow(a.integer(), b.integer(), &out)) Overflow();
      return Value::Integer(out);
    case '*':
      if (op == "**") return Power(a, b);
      if (real) return Value::Float(a.number() * b.number());
      if (__builtin_mul_overflow(a.integer(), b.integer(), &out)) Overflow();
      return Value::Integer(out);
    case '/':
      if (b.number() == 0) Fail(op == "/" && !real ? "division by zero" : "integer division or modulo by zero");
      if (op == "/") return Value::Float(a.number() / b.number());
      if (real) return Value::Float(FloatFloorDivide(a.number(), b.number()));
      return Value::Integer(FloorDivide(a.integer(), b.integer()));
    default:
      if (b.number() == 0) Fail("integer division or modulo by zero");
      if (real) return Value::Float(FloatModulo(a.number(), b.number()));
      return Value::Integer(IntegerModulo(a.integer(), b.integer()));
  }
}

}  // namespace

Value Add(const Value& a, const Value& b) {
  return BinaryOperation("+", a, b);
}

Value BinaryOperation(const std::string& op, const Value& a, const Value& b) {
  if (op == "%" && a.is_string()) {
    ChargeBytes(a.text().size());
    return Value::String(PercentFormat(a.text(), b, a.is_markup()), a.is_markup());
  }
  if (a.is_undefined()) Fail(a.undefined_message());
  if (b.is_undefined()) Fail(b.undefined_message());
  if (a.is_number() && b.is_number()) return Arithmetic(op, a, b);
  if (op == "+") {
    if (a.is_string() && b.is_string()) {
      if (a.is_markup() || b.is_markup()) return Value::String(EscapeHtml(a) + EscapeHtml(b), true);
      return Value::String(StrCat(a.text(), b.text()));
    }
    if (a.is_sequence() && b.kind() == a.kind()) {
      std::vector<Value> items = a.items();
      items.insert(items.end(), b.items().begin(), b.items().end());
      return a.is_list() ? Value::List(std::move(items)) : Value::Tuple(std::move(items));
    }
    if (a.is_string() || a.is_sequence()) {
      const std::string type = a.is_string() ? "str" : TypeName(a);
      Fail(StrCat("can only concatenate ", type, " (not \"", TypeName(b), "\") to ", type));
    }
  }
  if (op == "*") {
    if ((a.is_string() || a.is_sequence()) && b.is_integral()) return Repeat(a, b.integer());
    if ((b.is_string() || b.is_sequence()) && a.is_integral()) return Repeat(b, a.integer());
  }
  Unsupported(op, a, b);
}

Value Negate(const Value& value) {
  if (value.is_undefined()) Fail(value.undefined_message());
  if (value.is_float()) return Value::Float(-value.number());
  if (!value.is_integral()) Fail(StrCat("bad operand type for unary -: '", TypeName(value), "'"));
  Int out;
  if (__builtin_sub_overflow(static_cast<Int>(0), value.integer(), &out)) Overflow();
  return Value::Integer(out);
}

Value Slice(const Value& object, const Value& start, const Value& stop, const Value& step) {
  if (object.is_undefined()) Fail(object.undefined_message());
  for (const Value* bound : {&start, &stop, &step}) {
    if (bound->is_undefined()) Fail(bound->undefined_message());
    if (!bound->is_none() && !bound->is_integral()) Fail("slice indices must be integers or None");
  }
  auto* range = object.is_object() ? dynamic_cast<Range*>(&object.object()) : nullptr;
  if (!object.is_string() && !object.is_sequence() && range == nullptr) {
    if (object.is_dict()) Fail("unhashable type: 'slice'");
    Fail(StrCat("'", TypeName(object), "' object is not subscriptable"));
  }
  const std::vector<std::string_view> chars =
      object.is_string() && !object.is_ascii() ? SplitCodePoints(object.text()) : std::vector<std::string_view>();
  const Int length = static_cast<Int>(*Length(object));
  ChargeSteps(static_cast<int64_t>(chars.size() / 16));
  const Int by = step.is_none() ? 1 : step.integer();
  if (by == 0) Fail("slice step cannot be zero");
  auto clamp = [&](const Value& bound, Int otherwise) {
    if (bound.is_none()) return otherwise;
    Int at = bound.integer();
    if (at < 0) at = std::max<Int>(at + length, by > 0 ? 0 : -1);
    return std::min<Int>(at, by > 0 ? length : length - 1);
  };
  const Int first = clamp(start, by > 0 ? 0 : length - 1);
  const Int last = clamp(stop, by > 0 ? length : -1);
  if (object.is_string()) {
    std::string text;
    if (by == 1 && object.is_ascii()) {
      if (first < last) text = object.text().substr(static_cast<size_t>(first), static_cast<size_t>(last - first));
    } else {
      for (Int i = first; by > 0 ? i < last : i > last; i += by) {
        if (chars.empty()) {
          text.push_back(object.text()[static_cast<size_t>(i)]);
        } else {
          text.append(chars[static_cast<size_t>(i)]);
        }
        if (by > length || by < -length) break;
      }
    }
    return Value::String(std::move(text), object.is_markup());
  }
  if (range != nullptr) return Value::FromObject(range->Slice(first, last, by));
  const std::vector<Value>& items = object.items();
  std::vector<Value> out;
  for (Int i = first; by > 0 ? i < last : i > last; i += by) {
    out.push_back(items[static_cast<size_t>(i)]);
    if (by > length || by < -length) break;
  }
  return object.is_tuple() ? Value::Tuple(std::move(out)) : Value::List(std::move(out));
}

std::string DescribeForUndefined(const Value& object) {
  if (object.is_none()) return "None";
  return StrCat(TypeName(object), " object");
}

}  // namespace manta::chat_template
