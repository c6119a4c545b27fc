// Runs a parsed template over a context. One Interpreter serves one render, on one thread.
//
// Scopes follow Jinja: a loop's round, a macro, a call, filter or set block and `with` have their own names; `if` has
// not. A macro sees the variables around its definition as they are when it is called. Everything that could run away
// (steps, text, nesting) draws on a budget, so that a hostile template ends with an error.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/template/ast.h"
#include "common/template/value.h"

namespace manta::chat_template {

struct Scope {
  explicit Scope(std::shared_ptr<Scope> outer) : parent(std::move(outer)) {}
  const Value* Find(std::string_view name) const;
  void Set(std::string_view name, Value value);

  std::shared_ptr<Scope> parent;
  std::vector<std::pair<std::string_view, Value>> names;  // views of the tree or the context, which outlive the render
};
using ScopePtr = std::shared_ptr<Scope>;

class LoopContext;

// Broken-down local time for strftime_now.
struct CivilTime {
  int year = 1970, month = 1, day = 1, hour = 0, minute = 0, second = 0, microsecond = 0;
};

class Interpreter {
 public:
  struct Span {
    size_t begin, end;  // bytes of the text
  };

  Interpreter(ScopePtr context, CivilTime now) : context_(std::move(context)), now_(now) {}
  ~Interpreter();
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;

  std::string Run(const Body& body);
  const std::vector<Span>& generation_spans() const { return spans_; }
  int line() const { return line_; }
  const CivilTime& now() const { return now_; }
  bool autoescape() const { return autoescape_; }

  Value Call(const Value& callee, Args args);
  Value Attribute(const Value& object, const std::string& name);
  Value Item(const Value& object, const Value& key);
  Value ApplyFilter(const std::string& name, const Value& value, const Args& args);
  bool ApplyTest(const std::string& name, const Value& value, const Args& args);

  // Objects that can take part in a cycle; emptied when the render ends.
  void Keep(std::shared_ptr<Object> object) { kept_objects_.push_back(std::move(object)); }

  // Called by the objects that stand for macros and loops.
  Value CallMacro(const Stmt& stmt, const ScopePtr& scope, const std::string& name, Args args);
  void RunLoop(const Stmt& stmt, const ScopePtr& scope, const Value& iterable, int depth0, std::string* out);

 private:
  enum class Flow { kNormal, kBreak, kContinue };
  class Depth;
  class Redirect;

  Flow Execute(const Body& body, const ScopePtr& scope);
  Flow Execute(const Stmt& stmt, const ScopePtr& scope);
  Flow ExecuteFor(const Stmt& stmt, const ScopePtr& scope);
  Flow ExecuteIf(const Stmt& stmt, const ScopePtr& scope);
  void ExecuteSetBlock(const Stmt& stmt, const ScopePtr& scope);
  void ExecuteCallBlock(const Stmt& stmt, const ScopePtr& scope);
  void ExecuteFilterBlock(const Stmt& stmt, const ScopePtr& scope);
  Flow ExecuteWith(const Stmt& stmt, const ScopePtr& scope);
  void ExecuteGeneration(const Stmt& stmt, const ScopePtr& scope);
  std::string Capture(const Body& body, const ScopePtr& scope);
  void Write(std::string_view text);
  void WriteString(const Value& value);  // what must be a string already
  void CheckNamespaceTargets(const Expr& target, const ScopePtr& scope);
  void Assign(const Expr& target, const Value& value, const ScopePtr& scope);
  ScopePtr Captured(ScopePtr scope);

  Value Evaluate(const Expr& expr, const ScopePtr& scope);
  Value EvaluateName(const Expr& expr, const ScopePtr& scope);
  Value EvaluateDict(const Expr& expr, const ScopePtr& scope);
  Value EvaluateCompare(const Expr& expr, const ScopePtr& scope);
  Value EvaluateConcat(const Expr& expr, const ScopePtr& scope);
  Value EvaluateSlice(const Expr& expr, const ScopePtr& scope);
  Value EvaluateCall(const Expr& expr, const ScopePtr& scope, const Value* caller);
  Value EvaluateFilter(const Expr& expr, const ScopePtr& scope, const Value* input);
  bool EvaluateTest(const Expr& expr, const ScopePtr& scope);
  std::vector<Value> EvaluateAll(const std::vector<ExprPtr>& exprs, const ScopePtr& scope);
  Args EvaluateArgs(const Expr& expr, const ScopePtr& scope);

  ScopePtr context_;
  CivilTime now_;
  std::string* out_ = nullptr;
  std::string* root_ = nullptr;
  std::vector<Span> spans_;
  int line_ = 1;
  int depth_ = 0;
  bool autoescape_ = false;
  std::vector<ScopePtr> captured_;
  std::vector<std::shared_ptr<Object>> kept_objects_;
};

// Operators (operators.cc).
Value Add(const Value& a, const Value& b);
Value BinaryOperation(const std::string& op, const Value& a, const Value& b);
Value Negate(const Value& value);
Value Slice(const Value& object, const Value& start, const Value& stop, const Value& step);
std::string DescribeForUndefined(const Value& object);

}  // namespace manta::chat_template
