// The objects that the interpreter itself makes: loops, macros, namespaces, generators.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "common/template/ast.h"
#include "common/template/interpreter.h"
#include "common/template/value.h"

namespace manta::chat_template {

// `loop` inside a for loop. It draws its items one at a time, so that a loop's filter sees what the body changed;
// asking for what comes next looks one item ahead, and asking for the length of what has none reads the rest.
class LoopContext : public Object, public std::enable_shared_from_this<LoopContext> {
 public:
  LoopContext(const Value& iterable, Next next, bool sized, int depth0, std::function<Value(const Value&)> recurse);

  std::optional<Value> Advance();  // the next item, or nothing

  std::string TypeName() const override { return "LoopContext"; }
  std::string Repr() const override;
  bool IsCallable() const override { return true; }
  Value Call(Interpreter& interpreter, Args args) override;
  std::optional<Value> GetAttribute(const std::string& name) override;
  std::optional<size_t> Length() override;
  std::optional<Next> Iterate() override;

 private:
  const std::optional<Value>& Peek();

  Value iterable_;
  Next next_;
  bool sized_;  // `iterable_` knows its length, and nothing filters it
  int depth0_;
  std::function<Value(const Value&)> recurse_;
  int64_t index0_ = -1;
  bool peeked_ = false;
  std::optional<Value> after_, before_, current_, last_changed_;
  std::optional<size_t> length_;
};

class Macro : public Object {
 public:
  Macro(const Stmt* stmt, ScopePtr scope, std::string name)
      : stmt_(stmt), scope_(std::move(scope)), name_(std::move(name)) {}

  std::string TypeName() const override { return "Macro"; }
  std::string Repr() const override;
  bool IsCallable() const override { return true; }
  Value Call(Interpreter& interpreter, Args args) override {
    return interpreter.CallMacro(*stmt_, scope_, name_, std::move(args));
  }
  std::optional<Value> GetAttribute(const std::string& name) override;

 private:
  const Stmt* stmt_;
  ScopePtr scope_;
  std::string name_;
};

class Namespace : public Object {
 public:
  explicit Namespace(std::shared_ptr<Dict> attributes) : attributes_(std::move(attributes)) {}

  void Set(const std::string& name, Value value);
  void Clear() { attributes_ = std::make_shared<Dict>(); }

  std::string TypeName() const override { return "Namespace"; }
  std::string Repr() const override;
  std::optional<Value> GetAttribute(const std::string& name) override;
  bool IsTrue() override { return true; }

 private:
  std::shared_ptr<Dict> attributes_;
};

class Range : public Object {
 public:
  Range(Int start, Int stop, Int step) : start_(start), stop_(stop), step_(step) {}

  // The items first, first + by, ... before `last`.
  std::shared_ptr<Range> Slice(Int first, Int last, Int by) const {
    return std::make_shared<Range>(start_ + first * step_, start_ + last * step_, step_ * by);
  }

  std::string TypeName() const override { return "range"; }
  std::string Repr() const override;
  std::optional<size_t> Length() override;
  std::optional<Value> GetItem(const Value& key) override;
  std::optional<Value> GetAttribute(const std::string& name) override;
  std::optional<Next> Iterate() override;
  std::optional<Next> IterateReversed() override;

 private:
  Int start_, stop_, step_;
};

}  // namespace manta::chat_template
