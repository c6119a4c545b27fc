#include "common/template/interpreter.h"

#include <algorithm>

#include "common/base/strings.h"
#include "common/template/builtins.h"
#include "common/template/objects.h"
#include "common/template/python_format.h"

namespace manta::chat_template {
namespace {

constexpr int kMaxDepth = 1000;

}  // namespace

// Counts how deeply the interpreter calls itself.
class Interpreter::Depth {
 public:
  explicit Depth(Interpreter* interpreter) : interpreter_(interpreter) {
    if (++interpreter->depth_ > kMaxDepth) {
      --interpreter->depth_;
      Fail("calls itself too deeply: macros or loops recurse without an end");
    }
  }
  ~Depth() { --interpreter_->depth_; }

 private:
  Interpreter* interpreter_;
};

// Sends output into `out` for a while.
class Interpreter::Redirect {
 public:
  Redirect(Interpreter* interpreter, std::string* out) : interpreter_(interpreter), before_(interpreter->out_) {
    interpreter->out_ = out;
  }
  ~Redirect() { interpreter_->out_ = before_; }

 private:
  Interpreter* interpreter_;
  std::string* before_;
};

const Value* Scope::Find(std::string_view name) const {
  for (const Scope* scope = this; scope != nullptr; scope = scope->parent.get()) {
    for (auto it = scope->names.rbegin(); it != scope->names.rend(); ++it) {
      if (it->first == name) return &it->second;
    }
  }
  return nullptr;
}

void Scope::Set(std::string_view name, Value value) {
  for (auto& [known, old] : names) {
    if (known == name) {
      old = std::move(value);
      return;
    }
  }
  names.emplace_back(name, std::move(value));
}

Interpreter::~Interpreter() {
  // Macros hold the scopes that hold them, and namespaces can hold themselves.
  for (const ScopePtr& scope : captured_) scope->names.clear();
  for (const auto& object : kept_objects_) {
    if (auto* ns = dynamic_cast<Namespace*>(object.get())) ns->Clear();
  }
}

std::string Interpreter::Run(const Body& body) {
  std::string text;
  out_ = root_ = &text;
  Execute(body, std::make_shared<Scope>(context_));
  out_ = root_ = nullptr;
  return text;
}

ScopePtr Interpreter::Captured(ScopePtr scope) {
  if (captured_.empty() || captured_.back() != scope) captured_.push_back(scope);
  return scope;
}

void Interpreter::Write(std::string_view text) {
  ChargeBytes(text.size());
  out_->append(text);
}

void Interpreter::WriteString(const Value& value) {
  if (!value.is_string()) Fail(StrCat("the block gives ", TypeName(value), " where text is expected"));
  Write(value.text());
}

std::string Interpreter::Capture(const Body& body, const ScopePtr& scope) {
  std::string text;
  Redirect redirect(this, &text);
  Execute(body, scope);
  return text;
}

Interpreter::Flow Interpreter::Execute(const Body& body, const ScopePtr& scope) {
  Depth depth(this);
  for (const auto& stmt : body) {
    const Flow flow = Execute(*stmt, scope);
    if (flow != Flow::kNormal) return flow;
  }
  return Flow::kNormal;
}

Interpreter::Flow Interpreter::Execute(const Stmt& stmt, const ScopePtr& scope) {
  ChargeSteps(1);
  line_ = stmt.line;
  switch (stmt.kind) {
    case Stmt::Kind::kText:
      Write(stmt.name);
      break;
    case Stmt::Kind::kOutput:
      for (const auto& expr : stmt.exprs) {
        const Value value = Evaluate(*expr, scope);
        if (autoescape_) {
          Write(EscapeHtml(value));
        } else if (value.is_string()) {
          Write(value.text());
        } else {
          Write(Str(value));
        }
      }
      break;
    case Stmt::Kind::kFor:
      return ExecuteFor(stmt, scope);
    case Stmt::Kind::kIf:
      return ExecuteIf(stmt, scope);
    case Stmt::Kind::kSet:
      CheckNamespaceTargets(*stmt.target, scope);
      Assign(*stmt.target, Evaluate(*stmt.exprs[0], scope), scope);
      break;
    case Stmt::Kind::kSetBlock:
      ExecuteSetBlock(stmt, scope);
      break;
    case Stmt::Kind::kMacro:
      scope->Set(stmt.name, Value::FromObject(std::make_shared<Macro>(&stmt, Captured(scope), stmt.name)));
      break;
    case Stmt::Kind::kCallBlock:
      ExecuteCallBlock(stmt, scope);
      break;
    case Stmt::Kind::kFilterBlock:
      ExecuteFilterBlock(stmt, scope);
      break;
    case Stmt::Kind::kWith:
      return ExecuteWith(stmt, scope);
    case Stmt::Kind::kAutoescape: {
      const bool before = std::exchange(autoescape_, IsTrue(Evaluate(*stmt.exprs[0], scope)));
      const Flow flow = Execute(stmt.body, std::make_shared<Scope>(scope));
      autoescape_ = before;
      return flow;
    }
    case Stmt::Kind::kBlock:
      Execute(stmt.body, std::make_shared<Scope>(scope));
      break;
    case Stmt::Kind::kGeneration:
      ExecuteGeneration(stmt, scope);
      break;
    case Stmt::Kind::kBreak:
      return Flow::kBreak;
    case Stmt::Kind::kContinue:
      return Flow::kContinue;
    case Stmt::Kind::kUnsupported:
      Fail(stmt.name);
  }
  return Flow::kNormal;
}

Interpreter::Flow Interpreter::ExecuteIf(const Stmt& stmt, const ScopePtr& scope) {
  for (const auto& [test, body] : stmt.branches) {
    line_ = test->line;
    if (IsTrue(Evaluate(*test, scope))) return Execute(body, scope);
  }
  return Execute(stmt.otherwise, scope);
}

Interpreter::Flow Interpreter::ExecuteFor(const Stmt& stmt, const ScopePtr& scope) {
  const Value iterable = Evaluate(*stmt.exprs[0], scope);
  if (!stmt.recursive) {
    RunLoop(stmt, scope, iterable, 0, out_);
    return Flow::kNormal;
  }
  std::string text;
  RunLoop(stmt, scope, iterable, 0, &text);
  Write(text);
  return Flow::kNormal;
}

void Interpreter::RunLoop(const Stmt& stmt, const ScopePtr& scope, const Value& iterable, int depth0,
                          std::string* out) {
  Depth depth(this);
  Redirect redirect(this, out);
  line_ = stmt.line;
  Next next = Iterate(iterable);
  const Expr* filter = stmt.exprs[1].get();
  if (filter != nullptr) {
    next = [this, &stmt, filter, scope, source = std::move(next)]() -> std::optional<Value> {
      while (std::optional<Value> item = source()) {
        auto inner = std::make_shared<Scope>(scope);
        Assign(*stmt.target, *item, inner);
        if (IsTrue(Evaluate(*filter, inner))) return item;
      }
      return std::nullopt;
    };
  }
  std::function<Value(const Value&)> recurse;
  if (stmt.recursive) {
    recurse = [this, &stmt, scope, depth0](const Value& inner) {
      std::string text;
      RunLoop(stmt, scope, inner, depth0 + 1, &text);
      return Value::String(std::move(text), autoescape_);
    };
  }
  auto loop = std::make_shared<LoopContext>(iterable, std::move(next), filter == nullptr, depth0, std::move(recurse));
  const Value loop_value = Value::FromObject(loop);
  bool any = false;
  while (std::optional<Value> item = loop->Advance()) {
    ChargeSteps(1);
    any = true;
    auto round = std::make_shared<Scope>(scope);
    round->Set("loop", loop_value);
    Assign(*stmt.target, *item, round);
    if (Execute(stmt.body, round) == Flow::kBreak) return;
  }
  if (!any) Execute(stmt.otherwise, std::make_shared<Scope>(scope));
}

void Interpreter::ExecuteSetBlock(const Stmt& stmt, const ScopePtr& scope) {
  auto inner = std::make_shared<Scope>(scope);
  Value value = Value::String(Capture(stmt.body, inner), autoescape_);
  line_ = stmt.line;
  if (stmt.exprs[0] != nullptr) value = EvaluateFilter(*stmt.exprs[0], inner, &value);
  CheckNamespaceTargets(*stmt.target, scope);
  Assign(*stmt.target, value, scope);
}

void Interpreter::ExecuteCallBlock(const Stmt& stmt, const ScopePtr& scope) {
  const Value caller = Value::FromObject(std::make_shared<Macro>(&stmt, Captured(scope), "caller"));
  WriteString(EvaluateCall(*stmt.exprs[0], scope, &caller));
}

void Interpreter::ExecuteFilterBlock(const Stmt& stmt, const ScopePtr& scope) {
  auto inner = std::make_shared<Scope>(scope);
  const Value text = Value::String(Capture(stmt.body, inner), autoescape_);
  line_ = stmt.line;
  WriteString(EvaluateFilter(*stmt.exprs[0], inner, &text));
}

Interpreter::Flow Interpreter::ExecuteWith(const Stmt& stmt, const ScopePtr& scope) {
  auto inner = std::make_shared<Scope>(scope);
  for (size_t i = 0; i < stmt.targets.size(); ++i) Assign(*stmt.targets[i], Evaluate(*stmt.exprs[i], scope), inner);
  return Execute(stmt.body, inner);
}

void Interpreter::ExecuteGeneration(const Stmt& stmt, const ScopePtr& scope) {
  const std::string text = Capture(stmt.body, std::make_shared<Scope>(scope));
  spans_.push_back({root_->size(), root_->size() + text.size()});
  Write(text);
}

Value Interpreter::CallMacro(const Stmt& stmt, const ScopePtr& scope, const std::string& name, Args args) {
  Depth depth(this);
  const Signature& signature = stmt.signature;
  const size_t count = signature.names.size();
  auto inner = std::make_shared<Scope>(scope);
  auto take = [&](const std::string& wanted) -> std::optional<Value> {
    for (auto it = args.named.begin(); it != args.named.end(); ++it) {
      if (it->first != wanted) continue;
      Value value = std::move(it->second);
      args.named.erase(it);
      return value;
    }
    return std::nullopt;
  };
  std::vector<std::optional<Value>> given(count);
  bool names_caller = false;
  for (size_t i = 0; i < count; ++i) {
    if (signature.names[i] == "caller") names_caller = true;
    given[i] = i < args.positional.size() ? args.positional[i] : take(signature.names[i]);
  }
  if (signature.uses_caller && !names_caller) {
    const std::optional<Value> caller = take("caller");
    inner->Set("caller", caller && !caller->is_none() ? *caller : Value::Undefined("No caller defined"));
  }
  if (signature.uses_kwargs) {
    auto kwargs = std::make_shared<Dict>();
    for (auto& [key, value] : args.named) kwargs->Set(key, value);
    inner->Set("kwargs", Value::FromDict(std::move(kwargs)));
  } else if (!args.named.empty()) {
    Fail(StrCat("macro '", name, "' takes no keyword argument '", args.named[0].first, "'"));
  }
  if (signature.uses_varargs) {
    std::vector<Value> rest(
        args.positional.begin() + static_cast<std::ptrdiff_t>(std::min(count, args.positional.size())),
        args.positional.end());
    inner->Set("varargs", Value::Tuple(std::move(rest)));
  } else if (args.positional.size() > count) {
    Fail(StrCat("macro '", name, "' takes not more than ", count, " argument(s)"));
  }
  const size_t first_default = count - signature.defaults.size();
  for (size_t i = 0; i < count; ++i) {
    if (given[i]) {
      inner->Set(signature.names[i], *std::move(given[i]));
    } else if (i >= first_default) {
      inner->Set(signature.names[i], Evaluate(*signature.defaults[i - first_default], inner));
    } else {
      inner->Set(signature.names[i], Value::Undefined(StrCat("parameter '", signature.names[i], "' was not provided")));
    }
  }
  const int caller_line = line_;
  std::string text = Capture(stmt.body, inner);
  line_ = caller_line;
  return Value::String(std::move(text), autoescape_);
}

void Interpreter::CheckNamespaceTargets(const Expr& target, const ScopePtr& scope) {
  for (const auto& child : target.children) CheckNamespaceTargets(*child, scope);
  if (target.kind != Expr::Kind::kNamespaceRef) return;
  const Value* value = scope->Find(target.name);
  if (value == nullptr || !value->is_object() || dynamic_cast<Namespace*>(&value->object()) == nullptr) {
    Fail(StrCat("cannot assign the attribute '", target.attribute, "' of '", target.name,
                "': it is no namespace (make one with namespace())"));
  }
}

void Interpreter::Assign(const Expr& target, const Value& value, const ScopePtr& scope) {
  switch (target.kind) {
    case Expr::Kind::kName:
      scope->Set(target.name, value);
      return;
    case Expr::Kind::kNamespaceRef: {
      const Value* found = scope->Find(target.name);
      dynamic_cast<Namespace&>(found->object()).Set(target.attribute, value);
      return;
    }
    default:
      break;
  }
  std::optional<Next> next = TryIterate(value);
  if (!next) Fail(StrCat("cannot unpack non-iterable ", TypeName(value), " object"));
  const size_t wanted = target.children.size();
  std::vector<Value> values;
  while (std::optional<Value> item = (*next)()) {
    if (values.size() == wanted) Fail(StrCat("too many values to unpack (expected ", wanted, ")"));
    values.push_back(*std::move(item));
  }
  if (values.size() < wanted) {
    Fail(StrCat("not enough values to unpack (expected ", wanted, ", got ", values.size(), ")"));
  }
  for (size_t i = 0; i < wanted; ++i) Assign(*target.children[i], values[i], scope);
}

}  // namespace manta::chat_template
