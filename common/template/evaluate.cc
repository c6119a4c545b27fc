// Expressions.
#include "common/base/strings.h"
#include "common/template/builtins.h"
#include "common/template/interpreter.h"
#include "common/template/python_format.h"

namespace manta::chat_template {

namespace {

constexpr int kMaxEvaluateDepth = 2000;

class Deeper {
 public:
  explicit Deeper(int* depth) : depth_(depth) {
    if (++*depth > kMaxEvaluateDepth) {
      --*depth;
      Fail("calls itself too deeply: macros or loops recurse without an end");
    }
  }
  ~Deeper() { --*depth_; }

 private:
  int* depth_;
};

bool Compare(const std::string& op, const Value& a, const Value& b) {
  if (op == "==") return Equals(a, b);
  if (op == "!=") return !Equals(a, b);
  if (op == "in") return Contains(b, a);
  if (op == "not in") return !Contains(b, a);
  if (op == "<") return Less(a, b, op);
  if (op == ">") return Less(b, a, op);
  const bool nan = (a.is_float() && a.number() != a.number()) || (b.is_float() && b.number() != b.number());
  if (op == "<=") return !Less(b, a, op) && !nan;
  return !Less(a, b, op) && !nan;
}

}  // namespace

Value Interpreter::Evaluate(const Expr& expr, const ScopePtr& scope) {
  ChargeSteps(1);
  Deeper deeper(&depth_);
  switch (expr.kind) {
    case Expr::Kind::kConst:
      return expr.constant;
    case Expr::Kind::kName:
      return EvaluateName(expr, scope);
    case Expr::Kind::kTuple:
      return Value::Tuple(EvaluateAll(expr.children, scope));
    case Expr::Kind::kList:
      return Value::List(EvaluateAll(expr.children, scope));
    case Expr::Kind::kDict:
      return EvaluateDict(expr, scope);
    case Expr::Kind::kCondition:
      if (IsTrue(Evaluate(*expr.children[0], scope))) return Evaluate(*expr.children[1], scope);
      if (expr.children[2] != nullptr) return Evaluate(*expr.children[2], scope);
      return Value::Undefined("the inline if-expression evaluated to false and no else section was defined");
    case Expr::Kind::kOr: {
      Value left = Evaluate(*expr.children[0], scope);
      return IsTrue(left) ? left : Evaluate(*expr.children[1], scope);
    }
    case Expr::Kind::kAnd: {
      Value left = Evaluate(*expr.children[0], scope);
      return IsTrue(left) ? Evaluate(*expr.children[1], scope) : left;
    }
    case Expr::Kind::kNot:
      return Value::Bool(!IsTrue(Evaluate(*expr.children[0], scope)));
    case Expr::Kind::kCompare:
      return EvaluateCompare(expr, scope);
    case Expr::Kind::kBinary: {
      const Value left = Evaluate(*expr.children[0], scope);
      const Value right = Evaluate(*expr.children[1], scope);
      line_ = expr.line;
      return BinaryOperation(expr.name, left, right);
    }
    case Expr::Kind::kConcat:
      return EvaluateConcat(expr, scope);
    case Expr::Kind::kNegate:
      return Negate(Evaluate(*expr.children[0], scope));
    case Expr::Kind::kPlus: {
      const Value value = Evaluate(*expr.children[0], scope);
      return Negate(Negate(value));
    }
    case Expr::Kind::kAttribute: {
      const Value object = Evaluate(*expr.children[0], scope);
      line_ = expr.line;
      return Attribute(object, expr.name);
    }
    case Expr::Kind::kItem: {
      const Value object = Evaluate(*expr.children[0], scope);
      const Value key = Evaluate(*expr.children[1], scope);
      line_ = expr.line;
      return Item(object, key);
    }
    case Expr::Kind::kSlice:
      return EvaluateSlice(expr, scope);
    case Expr::Kind::kCall:
      return EvaluateCall(expr, scope, nullptr);
    case Expr::Kind::kFilter:
      return EvaluateFilter(expr, scope, nullptr);
    case Expr::Kind::kTest:
      return Value::Bool(EvaluateTest(expr, scope));
    case Expr::Kind::kNamespaceRef:
      break;
  }
  Fail("an assignment's target stands where a value is expected");
}

Value Interpreter::EvaluateName(const Expr& expr, const ScopePtr& scope) {
  if (const Value* value = scope->Find(expr.name)) return *value;
  if (std::optional<Value> global = FindGlobal(expr.name)) return *std::move(global);
  return Value::Undefined(StrCat("'", expr.name, "' is undefined"));
}

Value Interpreter::EvaluateDict(const Expr& expr, const ScopePtr& scope) {
  auto dict = std::make_shared<Dict>();
  for (size_t i = 0; i + 1 < expr.children.size(); i += 2) {
    Value key = Evaluate(*expr.children[i], scope);
    dict->Set(std::move(key), Evaluate(*expr.children[i + 1], scope));
  }
  return Value::FromDict(std::move(dict));
}

Value Interpreter::EvaluateCompare(const Expr& expr, const ScopePtr& scope) {
  Value left = Evaluate(*expr.children[0], scope);
  for (size_t i = 0; i < expr.operators.size(); ++i) {
    Value right = Evaluate(*expr.children[i + 1], scope);
    line_ = expr.line;
    if (!Compare(expr.operators[i], left, right)) return Value::Bool(false);
    left = std::move(right);
  }
  return Value::Bool(true);
}

Value Interpreter::EvaluateConcat(const Expr& expr, const ScopePtr& scope) {
  std::vector<Value> parts = EvaluateAll(expr.children, scope);
  bool markup = false;
  for (const Value& part : parts) markup = markup || part.is_markup();
  markup = markup && autoescape_;
  std::string text;
  for (const Value& part : parts) text += markup ? EscapeHtml(part) : Str(part);
  return Value::String(std::move(text), markup);
}

Value Interpreter::EvaluateSlice(const Expr& expr, const ScopePtr& scope) {
  auto bound = [&](size_t i) { return expr.children[i] == nullptr ? Value() : Evaluate(*expr.children[i], scope); };
  const Value object = Evaluate(*expr.children[0], scope);
  const Value start = bound(1), stop = bound(2), step = bound(3);
  line_ = expr.line;
  return Slice(object, start, stop, step);
}

std::vector<Value> Interpreter::EvaluateAll(const std::vector<ExprPtr>& exprs, const ScopePtr& scope) {
  std::vector<Value> values;
  values.reserve(exprs.size());
  for (const auto& expr : exprs) values.push_back(Evaluate(*expr, scope));
  return values;
}

Args Interpreter::EvaluateArgs(const Expr& expr, const ScopePtr& scope) {
  Args args;
  args.positional = EvaluateAll(expr.positional, scope);
  if (expr.star != nullptr) {
    for (Value& value : ToVector(Evaluate(*expr.star, scope))) args.positional.push_back(std::move(value));
  }
  for (const auto& [name, value] : expr.named) args.named.emplace_back(name, Evaluate(*value, scope));
  if (expr.star_star != nullptr) {
    const Value more = Evaluate(*expr.star_star, scope);
    if (!more.is_dict()) Fail(StrCat("argument after ** must be a mapping, not ", TypeName(more)));
    for (const auto& [key, value] : more.dict().entries) {
      if (!key.is_string()) Fail("keywords must be strings");
      for (const auto& [name, other] : args.named) {
        if (name == key.text()) Fail(StrCat("got multiple values for keyword argument '", name, "'"));
      }
      args.named.emplace_back(key.text(), value);
    }
  }
  return args;
}

Value Interpreter::EvaluateCall(const Expr& expr, const ScopePtr& scope, const Value* caller) {
  const Value callee = Evaluate(*expr.children[0], scope);
  Args args = EvaluateArgs(expr, scope);
  if (caller != nullptr) args.named.emplace_back("caller", *caller);
  line_ = expr.line;
  return Call(callee, std::move(args));
}

Value Interpreter::EvaluateFilter(const Expr& expr, const ScopePtr& scope, const Value* input) {
  const Value value = expr.children[0] == nullptr                     ? *input
                      : expr.children[0]->kind == Expr::Kind::kFilter ? EvaluateFilter(*expr.children[0], scope, input)
                                                                      : Evaluate(*expr.children[0], scope);
  const Args args = EvaluateArgs(expr, scope);
  line_ = expr.line;
  return ApplyFilter(expr.name, value, args);
}

bool Interpreter::EvaluateTest(const Expr& expr, const ScopePtr& scope) {
  const Value value = Evaluate(*expr.children[0], scope);
  const Args args = EvaluateArgs(expr, scope);
  line_ = expr.line;
  return ApplyTest(expr.name, value, args);
}

Value Interpreter::ApplyFilter(const std::string& name, const Value& value, const Args& args) {
  const Filter filter = FindFilter(name);
  if (filter == nullptr) Fail(UnknownFilter(name));
  ChargeSteps(1);
  return filter(*this, value, args);
}

bool Interpreter::ApplyTest(const std::string& name, const Value& value, const Args& args) {
  const Test test = FindTest(name);
  if (test == nullptr) Fail(UnknownTest(name));
  ChargeSteps(1);
  return test(*this, value, args);
}

Value Interpreter::Call(const Value& callee, Args args) {
  if (callee.is_undefined()) Fail(callee.undefined_message());
  if (!callee.is_object()) Fail(StrCat("'", TypeName(callee), "' object is not callable"));
  ChargeSteps(1);
  return callee.object().Call(*this, std::move(args));
}

Value Interpreter::Attribute(const Value& object, const std::string& name) {
  if (object.is_undefined()) Fail(object.undefined_message());
  if (std::optional<Value> value = object.is_object() ? object.object().GetAttribute(name) : FindMethod(object, name)) {
    return *std::move(value);
  }
  if (object.is_dict()) {
    if (const Value* value = object.dict().Find(name)) return *value;
  }
  return Value::Undefined(StrCat("'", DescribeForUndefined(object), "' has no attribute '", name, "'"));
}

Value Interpreter::Item(const Value& object, const Value& key) {
  if (object.is_undefined()) Fail(object.undefined_message());
  if (object.is_dict() && !key.is_list() && !key.is_dict()) {
    if (const Value* value = object.dict().Find(key)) return *value;
  }
  if (key.is_integral() && (object.is_sequence() || object.is_string())) {
    const Int length = static_cast<Int>(*Length(object));
    const Int index = key.integer() < 0 ? key.integer() + length : key.integer();
    if (index >= 0 && index < length) {
      if (object.is_sequence()) return object.items()[static_cast<size_t>(index)];
      return Slice(object, Value::Integer(index), Value::Integer(index + 1), Value());
    }
  }
  if (object.is_object()) {
    if (std::optional<Value> value = object.object().GetItem(key)) return *std::move(value);
  }
  if (key.is_string()) {
    if (std::optional<Value> value =
            object.is_object() ? object.object().GetAttribute(key.text()) : FindMethod(object, key.text())) {
      return *std::move(value);
    }
    return Value::Undefined(StrCat("'", DescribeForUndefined(object), "' has no attribute ", Repr(key)));
  }
  return Value::Undefined(StrCat(DescribeForUndefined(object), " has no element ", Repr(key)));
}

}  // namespace manta::chat_template
