#include "common/template/value.h"

#include <cmath>
#include <cstring>

#include "absl/hash/hash.h"
#include "common/base/strings.h"
#include "common/template/python_format.h"
#include "common/template/text.h"

namespace manta::chat_template {
namespace {

constexpr size_t kLinearDict = 8;

thread_local Budget* current_budget = nullptr;

int Deeper(int deepest_child) {
  if (deepest_child >= kMaxValueDepth) {
    Fail(StrCat("values nest more than ", kMaxValueDepth, " deep"));
  }
  return deepest_child + 1;
}

int DepthOf(const std::vector<Value>& items) {
  int deepest = 0;
  for (const Value& item : items) deepest = std::max(deepest, item.depth());
  return Deeper(deepest);
}

}  // namespace

void Fail(std::string message) {
  throw TemplateFailure{std::move(message)};
}

BudgetScope::BudgetScope(Budget* budget) : before_(current_budget) {
  current_budget = budget;
}
BudgetScope::~BudgetScope() {
  current_budget = before_;
}

void ChargeSteps(int64_t steps) {
  if (current_budget != nullptr && (current_budget->steps -= steps) < 0) {
    current_budget->steps = 0;
    Fail("takes too many steps: its loops do not end, or nearly so");
  }
}

void ChargeBytes(size_t bytes) {
  if (current_budget != nullptr && (current_budget->bytes -= static_cast<int64_t>(bytes)) < 0) {
    current_budget->bytes = 0;
    Fail("builds too much text");
  }
}

Value Value::Bool(bool b) {
  Value v;
  v.kind_ = Kind::kBool;
  v.int_ = b ? 1 : 0;
  return v;
}
Value Value::Integer(Int i) {
  Value v;
  v.kind_ = Kind::kInt;
  v.int_ = i;
  return v;
}
Value Value::Float(double d) {
  Value v;
  v.kind_ = Kind::kFloat;
  v.float_ = d;
  return v;
}
Value Value::String(std::string text, bool markup) {
  ChargeBytes(text.size());
  auto heap = std::make_shared<Text>();
  heap->ascii = IsAscii(text);
  heap->text = std::move(text);
  heap->markup = markup;
  Value v;
  v.kind_ = Kind::kString;
  v.heap_ = std::move(heap);
  return v;
}
Value Value::List(std::vector<Value> items) {
  Value v = Tuple(std::move(items));
  v.kind_ = Kind::kList;
  return v;
}
Value Value::Tuple(std::vector<Value> items) {
  ChargeBytes(items.size() * sizeof(Value));
  auto heap = std::make_shared<Sequence>();
  heap->depth = DepthOf(items);
  heap->items = std::move(items);
  Value v;
  v.kind_ = Kind::kTuple;
  v.heap_ = std::move(heap);
  return v;
}
Value Value::Group(Value grouper, Value list) {
  Value v = Tuple({std::move(grouper), std::move(list)});
  static_cast<Sequence*>(v.heap_.get())->group = true;
  return v;
}
Value Value::FromDict(std::shared_ptr<Dict> dict) {
  Value v;
  v.kind_ = Kind::kDict;
  v.heap_ = std::move(dict);
  return v;
}
Value Value::FromObject(std::shared_ptr<Object> object) {
  Value v;
  v.kind_ = Kind::kObject;
  Deeper(object->depth);
  v.heap_ = std::move(object);
  return v;
}
Value Value::Undefined(std::string message) {
  auto heap = std::make_shared<Missing>();
  heap->message = std::move(message);
  Value v;
  v.kind_ = Kind::kUndefined;
  v.heap_ = std::move(heap);
  return v;
}

const std::string& Value::text() const {
  return static_cast<const Text&>(*heap_).text;
}
bool Value::is_markup() const {
  return is_string() && static_cast<const Text&>(*heap_).markup;
}
bool Value::is_ascii() const {
  return static_cast<const Text&>(*heap_).ascii;
}
const std::vector<Value>& Value::items() const {
  return static_cast<const Sequence&>(*heap_).items;
}
bool Value::is_group() const {
  return is_tuple() && static_cast<const Sequence&>(*heap_).group;
}
const Dict& Value::dict() const {
  return static_cast<const Dict&>(*heap_);
}
std::shared_ptr<const Dict> Value::shared_dict() const {
  return std::static_pointer_cast<const Dict>(heap_);
}
Object& Value::object() const {
  return static_cast<Object&>(*heap_);
}
const std::string& Value::undefined_message() const {
  return static_cast<const Missing&>(*heap_).message;
}

std::string Object::Repr() const {
  return StrCat("<", TypeName(), " object>");
}
Value Object::Call(Interpreter&, Args) {
  Fail(StrCat("'", TypeName(), "' object is not callable"));
}
std::optional<Value> Object::GetAttribute(const std::string&) {
  return std::nullopt;
}
std::optional<Value> Object::GetItem(const Value&) {
  return std::nullopt;
}
std::optional<size_t> Object::Length() {
  return std::nullopt;
}
std::optional<Next> Object::Iterate() {
  return std::nullopt;
}
std::optional<Next> Object::IterateReversed() {
  return std::nullopt;
}
bool Object::IsTrue() {
  const std::optional<size_t> length = Length();
  return !length || *length > 0;
}

size_t ValueHash::operator()(const Value& value) const {
  ChargeSteps(1);
  switch (value.kind()) {
    case Value::Kind::kNone:
      return 1;
    case Value::Kind::kBool:
    case Value::Kind::kInt:
    case Value::Kind::kFloat:
      return absl::HashOf(value.number());
    case Value::Kind::kString:
      return absl::HashOf(std::string_view(value.text()));
    case Value::Kind::kUndefined:
      return 2;
    case Value::Kind::kObject:
      return absl::HashOf(value.identity());
    case Value::Kind::kTuple: {
      size_t hash = 3;
      for (const Value& item : value.items()) hash = absl::HashOf(hash, (*this)(item));
      return hash;
    }
    case Value::Kind::kList:
    case Value::Kind::kDict:
      break;
  }
  Fail(StrCat("unhashable type: '", TypeName(value), "'"));
}

bool ValueEqual::operator()(const Value& a, const Value& b) const {
  return Equals(a, b);
}

const Value* Dict::Find(const Value& key) const {
  if (index_.empty()) {
    if (key.is_list() || key.is_dict()) ValueHash()(key);  // the error
    for (const auto& [k, v] : entries) {
      if (Equals(k, key)) return &v;
    }
    return nullptr;
  }
  const auto it = index_.find(key);
  return it == index_.end() ? nullptr : &entries[it->second].second;
}

const Value* Dict::Find(std::string_view key) const {
  if (!index_.empty()) return Find(Value::String(std::string(key)));
  for (const auto& [k, v] : entries) {
    if (k.is_string() && k.text() == key) return &v;
  }
  return nullptr;
}

void Dict::Set(Value key, Value value) {
  ChargeSteps(1);
  ChargeBytes(2 * sizeof(Value));
  depth = std::max(depth, Deeper(std::max(key.depth(), value.depth())));
  if (const Value* found = Find(key)) {
    const_cast<Value&>(*found) = std::move(value);
    return;
  }
  if (index_.empty()) {
    ValueHash()(key);  // an unhashable key is an error even in a small dict
    if (entries.size() >= kLinearDict) {
      for (size_t i = 0; i < entries.size(); ++i) index_.emplace(entries[i].first, i);
    }
  }
  if (!index_.empty()) index_.emplace(key, entries.size());
  entries.emplace_back(std::move(key), std::move(value));
}

std::string TypeName(const Value& value) {
  switch (value.kind()) {
    case Value::Kind::kUndefined:
      return "Undefined";
    case Value::Kind::kNone:
      return "NoneType";
    case Value::Kind::kBool:
      return "bool";
    case Value::Kind::kInt:
      return "int";
    case Value::Kind::kFloat:
      return "float";
    case Value::Kind::kString:
      return value.is_markup() ? "Markup" : "str";
    case Value::Kind::kList:
      return "list";
    case Value::Kind::kTuple:
      return "tuple";
    case Value::Kind::kDict:
      return "dict";
    case Value::Kind::kObject:
      return value.object().TypeName();
  }
  return "?";
}

}  // namespace manta::chat_template
