// Truth, equality, order, membership and iteration: what Python asks of a value without changing it.
#include <algorithm>

#include "common/base/strings.h"
#include "common/template/text.h"
#include "common/template/value.h"

namespace manta::chat_template {
namespace {

bool SameNumber(const Value& a, const Value& b) {
  if (a.is_float() || b.is_float()) return a.number() == b.number();
  return a.integer() == b.integer();
}

bool SequencesEqual(const std::vector<Value>& a, const std::vector<Value>& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (!Equals(a[i], b[i])) return false;
  }
  return true;
}

}  // namespace

bool IsTrue(const Value& value) {
  switch (value.kind()) {
    case Value::Kind::kUndefined:
    case Value::Kind::kNone:
      return false;
    case Value::Kind::kBool:
    case Value::Kind::kInt:
      return value.integer() != 0;
    case Value::Kind::kFloat:
      return value.number() != 0;
    case Value::Kind::kString:
      return !value.text().empty();
    case Value::Kind::kList:
    case Value::Kind::kTuple:
      return !value.items().empty();
    case Value::Kind::kDict:
      return !value.dict().entries.empty();
    case Value::Kind::kObject:
      return value.object().IsTrue();
  }
  return false;
}

bool Equals(const Value& a, const Value& b) {
  ChargeSteps(1);
  if (a.is_number() && b.is_number()) return SameNumber(a, b);
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Value::Kind::kUndefined:
    case Value::Kind::kNone:
      return true;
    case Value::Kind::kString:
      ChargeBytes(a.text().size() == b.text().size() ? a.text().size() : 0);
      return a.text() == b.text();
    case Value::Kind::kList:
    case Value::Kind::kTuple:
      return SequencesEqual(a.items(), b.items());
    case Value::Kind::kDict: {
      if (a.dict().entries.size() != b.dict().entries.size()) return false;
      for (const auto& [key, value] : a.dict().entries) {
        const Value* other = b.dict().Find(key);
        if (other == nullptr || !Equals(value, *other)) return false;
      }
      return true;
    }
    case Value::Kind::kObject:
      return a.identity() == b.identity();
    default:
      return false;
  }
}

bool Less(const Value& a, const Value& b, std::string_view op) {
  ChargeSteps(1);
  if (a.is_undefined()) Fail(a.undefined_message());
  if (b.is_undefined()) Fail(b.undefined_message());
  if (a.is_number() && b.is_number()) {
    if (a.is_float() || b.is_float()) return a.number() < b.number();
    return a.integer() < b.integer();
  }
  if (a.is_string() && b.is_string()) {  // UTF-8 sorts as its code points do
    ChargeBytes(std::min(a.text().size(), b.text().size()));
    return a.text() < b.text();
  }
  if (a.kind() == b.kind() && a.is_sequence()) {
    const auto& x = a.items();
    const auto& y = b.items();
    for (size_t i = 0; i < x.size() && i < y.size(); ++i) {
      if (!Equals(x[i], y[i])) return Less(x[i], y[i], op);
    }
    return x.size() < y.size();
  }
  Fail(StrCat("'", op, "' not supported between instances of '", TypeName(a), "' and '", TypeName(b), "'"));
}

bool Contains(const Value& container, const Value& item) {
  if (container.is_string()) {
    if (!item.is_string()) {
      if (item.is_undefined()) Fail(item.undefined_message());
      Fail(StrCat("'in <string>' requires string as left operand, not ", TypeName(item)));
    }
    ChargeBytes(container.text().size());
    return container.text().find(item.text()) != std::string::npos;
  }
  if (container.is_dict()) {
    ValueHash()(item);
    return container.dict().Find(item) != nullptr;
  }
  std::optional<Next> next = TryIterate(container);
  if (!next) Fail(StrCat("argument of type '", TypeName(container), "' is not iterable"));
  while (std::optional<Value> value = (*next)()) {
    if (IsSame(*value, item) || Equals(*value, item)) return true;
  }
  return false;
}

bool IsSame(const Value& a, const Value& b) {
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Value::Kind::kNone:
      return true;
    case Value::Kind::kBool:
    case Value::Kind::kInt:
      return a.integer() == b.integer();
    case Value::Kind::kFloat:
      return a.number() == b.number();
    case Value::Kind::kString:
      return a.is_markup() == b.is_markup() && a.text() == b.text();
    default:
      return a.identity() == b.identity();
  }
}

std::optional<size_t> Length(const Value& value) {
  switch (value.kind()) {
    case Value::Kind::kUndefined:
      return 0;
    case Value::Kind::kString:
      return value.is_ascii() ? value.text().size() : CodePointCount(value.text());
    case Value::Kind::kList:
    case Value::Kind::kTuple:
      return value.items().size();
    case Value::Kind::kDict:
      return value.dict().entries.size();
    case Value::Kind::kObject:
      return value.object().Length();
    default:
      return std::nullopt;
  }
}

std::optional<Next> TryIterate(const Value& value) {
  switch (value.kind()) {
    case Value::Kind::kUndefined:
      return []() -> std::optional<Value> { return std::nullopt; };
    case Value::Kind::kString:
      return [value, pos = size_t{0}]() mutable -> std::optional<Value> {
        if (pos >= value.text().size()) return std::nullopt;
        ChargeSteps(1);
        const size_t begin = pos;
        NextCodePoint(value.text(), &pos);
        return Value::String(value.text().substr(begin, pos - begin));  // Markup too yields plain text
      };
    case Value::Kind::kList:
    case Value::Kind::kTuple:
      return [value, i = size_t{0}]() mutable -> std::optional<Value> {
        if (i >= value.items().size()) return std::nullopt;
        ChargeSteps(1);
        return value.items()[i++];
      };
    case Value::Kind::kDict:
      return [value, i = size_t{0}]() mutable -> std::optional<Value> {
        if (i >= value.dict().entries.size()) return std::nullopt;
        ChargeSteps(1);
        return value.dict().entries[i++].first;
      };
    case Value::Kind::kObject:
      return value.object().Iterate();
    default:
      return std::nullopt;
  }
}

Next Iterate(const Value& value) {
  std::optional<Next> next = TryIterate(value);
  if (!next) Fail(StrCat("'", TypeName(value), "' object is not iterable"));
  return *std::move(next);
}

std::vector<Value> ToVector(const Value& value) {
  if (value.is_sequence()) return value.items();
  std::vector<Value> out;
  Next next = Iterate(value);
  while (std::optional<Value> item = next()) {
    ChargeBytes(sizeof(Value));
    out.push_back(*std::move(item));
  }
  return out;
}

}  // namespace manta::chat_template
