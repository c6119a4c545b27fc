#include "common/template/objects.h"

#include "common/base/strings.h"
#include "common/template/builtins.h"
#include "common/template/python_format.h"

namespace manta::chat_template {

LoopContext::LoopContext(const Value& iterable, Next next, bool sized, int depth0,
                         std::function<Value(const Value&)> recurse)
    : iterable_(iterable), next_(std::move(next)), sized_(sized), depth0_(depth0), recurse_(std::move(recurse)) {
  depth = iterable.depth() + 1;
}

std::optional<Value> LoopContext::Advance() {
  std::optional<Value> item = peeked_ ? std::exchange(after_, std::nullopt) : next_();
  peeked_ = false;
  if (!item) return item;
  ++index0_;
  before_ = std::move(current_);
  current_ = item;
  return item;
}

const std::optional<Value>& LoopContext::Peek() {
  if (!peeked_) {
    after_ = next_();
    peeked_ = true;
  }
  return after_;
}

std::optional<size_t> LoopContext::Length() {
  if (length_) return length_;
  if (sized_) length_ = chat_template::Length(iterable_);
  if (length_) return length_;
  std::vector<Value> rest;
  while (std::optional<Value> item = next_()) rest.push_back(*std::move(item));
  length_ = rest.size() + static_cast<size_t>(index0_ + 1) + (peeked_ && after_ ? 1 : 0);
  next_ = chat_template::Iterate(Value::List(std::move(rest)));
  return length_;
}

std::optional<Next> LoopContext::Iterate() {
  return [self = shared_from_this()]() -> std::optional<Value> {
    std::optional<Value> item = self->Advance();
    if (!item) return std::nullopt;
    return Value::Tuple({*std::move(item), Value::FromObject(self)});
  };
}

std::string LoopContext::Repr() const {
  return StrCat("<LoopContext ", index0_ + 1, "/", *const_cast<LoopContext*>(this)->Length(), ">");
}

Value LoopContext::Call(Interpreter&, Args args) {
  Bound bound("loop", args, {"iterable"}, 1);
  if (!recurse_) Fail("The loop must have the 'recursive' marker to be called recursively.");
  return recurse_(*bound[0]);
}

std::optional<Value> LoopContext::GetAttribute(const std::string& name) {
  auto integer = [](int64_t i) { return Value::Integer(i); };
  if (name == "index") return integer(index0_ + 1);
  if (name == "index0") return integer(index0_);
  if (name == "first") return Value::Bool(index0_ == 0);
  if (name == "last") return Value::Bool(!Peek().has_value());
  if (name == "length") return integer(static_cast<int64_t>(*Length()));
  if (name == "revindex") return integer(static_cast<int64_t>(*Length()) - index0_);
  if (name == "revindex0") return integer(static_cast<int64_t>(*Length()) - index0_ - 1);
  if (name == "depth") return integer(depth0_ + 1);
  if (name == "depth0") return integer(depth0_);
  if (name == "previtem") return before_ ? *before_ : Value::Undefined("there is no previous item");
  if (name == "nextitem") return Peek() ? *Peek() : Value::Undefined("there is no next item");
  if (name == "cycle") {
    return MakeFunction("cycle", [index = index0_](Interpreter&, Args args) {
      if (args.positional.empty()) Fail("no items for cycling given");
      return args.positional[static_cast<size_t>(index) % args.positional.size()];
    });
  }
  if (name == "changed") {
    return MakeFunction("changed", [self = shared_from_this()](Interpreter&, Args args) {
      const Value value = Value::Tuple(std::move(args.positional));
      const bool changed = !self->last_changed_ || !Equals(*self->last_changed_, value);
      self->last_changed_ = value;
      return Value::Bool(changed);
    });
  }
  return std::nullopt;
}

std::string Macro::Repr() const {
  return StrCat("<Macro ", StringRepr(name_), ">");
}

std::optional<Value> Macro::GetAttribute(const std::string& name) {
  if (name == "name") return Value::String(name_);
  if (name == "catch_kwargs") return Value::Bool(stmt_->signature.uses_kwargs);
  if (name == "catch_varargs") return Value::Bool(stmt_->signature.uses_varargs);
  if (name == "caller") return Value::Bool(stmt_->signature.uses_caller);
  if (name == "arguments") {
    std::vector<Value> names;
    for (const std::string& parameter : stmt_->signature.names) names.push_back(Value::String(parameter));
    return Value::Tuple(std::move(names));
  }
  return std::nullopt;
}

void Namespace::Set(const std::string& name, Value value) {
  if (value.depth() >= kMaxValueDepth - 1) Fail(StrCat("values nest more than ", kMaxValueDepth, " deep"));
  attributes_->Set(name, std::move(value));
}

std::optional<Value> Namespace::GetAttribute(const std::string& name) {
  const Value* value = attributes_->Find(name);
  if (value == nullptr) return std::nullopt;
  return *value;
}

std::string Namespace::Repr() const {
  static thread_local int nested = 0;  // a namespace can hold itself
  if (nested > 20) Fail("a namespace that holds itself has no text");
  ++nested;
  std::string text;
  try {
    text = chat_template::Repr(Value::FromDict(attributes_));
  } catch (...) {
    --nested;
    throw;
  }
  --nested;
  return StrCat("<Namespace ", text, ">");
}

std::string Range::Repr() const {
  std::string text = StrCat("range(", IntText(start_), ", ", IntText(stop_));
  if (step_ != 1) text += StrCat(", ", IntText(step_));
  return text + ")";
}

std::optional<size_t> Range::Length() {
  if (step_ > 0) return start_ >= stop_ ? 0 : static_cast<size_t>((stop_ - start_ - 1) / step_ + 1);
  return start_ <= stop_ ? 0 : static_cast<size_t>((start_ - stop_ - 1) / -step_ + 1);
}

std::optional<Value> Range::GetItem(const Value& key) {
  if (!key.is_integral()) return std::nullopt;
  const Int length = static_cast<Int>(*Length());
  const Int index = key.integer() < 0 ? key.integer() + length : key.integer();
  if (index < 0 || index >= length) return std::nullopt;
  return Value::Integer(start_ + index * step_);
}

std::optional<Value> Range::GetAttribute(const std::string& name) {
  if (name == "start") return Value::Integer(start_);
  if (name == "stop") return Value::Integer(stop_);
  if (name == "step") return Value::Integer(step_);
  return std::nullopt;
}

std::optional<Next> Range::Iterate() {
  return [start = start_, step = step_, i = Int{0},
          length = static_cast<Int>(*Length())]() mutable -> std::optional<Value> {
    if (i >= length) return std::nullopt;
    ChargeSteps(1);
    return Value::Integer(start + step * i++);
  };
}

std::optional<Next> Range::IterateReversed() {
  return [start = start_, step = step_, i = static_cast<Int>(*Length())]() mutable -> std::optional<Value> {
    if (i <= 0) return std::nullopt;
    ChargeSteps(1);
    return Value::Integer(start + step * --i);
  };
}

}  // namespace manta::chat_template
