#include "common/template/expression_parser.h"

#include <algorithm>

#include "common/base/strings.h"
#include "common/template/python_format.h"

namespace manta::chat_template {
namespace {

constexpr int kMaxNesting = 100;
constexpr int kMaxHeight = 500;

using Type = Token::Type;
using Kind = Expr::Kind;

}  // namespace

ExpressionParser::Nesting::Nesting(ExpressionParser* parser) : parser_(parser) {
  if (++parser_->nesting_ > kMaxNesting) {
    --parser_->nesting_;
    parser_->FailAt(parser_->Current().line, StrCat("blocks or brackets nest more than ", kMaxNesting, " deep"));
  }
}

void ExpressionParser::FailAt(int line, std::string message) const {
  throw SyntaxFailure{line, std::move(message)};
}

void ExpressionParser::Unexpected(std::string_view expected) const {
  FailAt(Current().line, StrCat("expected ", expected, ", found ", Describe(Current())));
}

bool ExpressionParser::SkipOperator(std::string_view op) {
  if (!IsOperator(op)) return false;
  Take();
  return true;
}
bool ExpressionParser::SkipName(std::string_view name) {
  if (!IsName(name)) return false;
  Take();
  return true;
}
void ExpressionParser::ExpectOperator(std::string_view op) {
  if (!SkipOperator(op)) Unexpected(StrCat("'", op, "'"));
}
void ExpressionParser::ExpectName(std::string_view name) {
  if (!SkipName(name)) Unexpected(StrCat("'", name, "'"));
}
const Token& ExpressionParser::ExpectAnyName(std::string_view what) {
  if (Current().type != Type::kName) Unexpected(what);
  return Take();
}

bool ExpressionParser::Mentions(size_t since, std::string_view name) const {
  for (size_t i = since; i < name_events_.size(); ++i) {
    if (name_events_[i].name == name) return !name_events_[i].store;
  }
  return false;
}

void ExpressionParser::SetHeight(Expr* node) const {
  int height = 0;
  auto see = [&](const ExprPtr& child) {
    if (child != nullptr) height = std::max(height, child->depth);
  };
  for (const auto& child : node->children) see(child);
  for (const auto& child : node->positional) see(child);
  for (const auto& [name, child] : node->named) see(child);
  see(node->star);
  see(node->star_star);
  node->depth = height + 1;
  if (node->depth > kMaxHeight)
    FailAt(node->line, StrCat("an expression has more than ", kMaxHeight, " operations in a row"));
}

ExprPtr ExpressionParser::Make(Kind kind, int line, std::vector<ExprPtr> children) const {
  auto node = std::make_unique<Expr>();
  node->kind = kind;
  node->line = line;
  node->children = std::move(children);
  SetHeight(node.get());
  return node;
}

ExprPtr ExpressionParser::Expression(bool with_condition) {
  Nesting nesting(this);
  return with_condition ? Condition() : Or();
}

ExprPtr ExpressionParser::Unary(bool with_filter) {
  Nesting nesting(this);
  const int line = Current().line;
  ExprPtr node;
  if (SkipOperator("-")) {
    node = Make(Kind::kNegate, line, Children(Unary(false)));
  } else if (SkipOperator("+")) {
    node = Make(Kind::kPlus, line, Children(Unary(false)));
  } else {
    node = Primary();
  }
  node = Postfix(std::move(node));
  return with_filter ? FilterChain(std::move(node)) : std::move(node);
}

ExprPtr ExpressionParser::Primary(bool with_namespace) {
  const Token& token = Current();
  const int line = token.line;
  auto constant = [&](Value value) {
    ExprPtr node = Make(Kind::kConst, line);
    node->constant = std::move(value);
    return node;
  };
  switch (token.type) {
    case Type::kName: {
      Take();
      const std::string name = token.text;
      if (name == "true" || name == "True") return constant(Value::Bool(true));
      if (name == "false" || name == "False") return constant(Value::Bool(false));
      if (name == "none" || name == "None") return constant(Value());
      if (with_namespace && SkipOperator(".")) {
        ExprPtr node = Make(Kind::kNamespaceRef, line);
        node->name = name;
        node->attribute = ExpectAnyName("the name of an attribute").text;
        return node;
      }
      ExprPtr node = Make(Kind::kName, line);
      node->name = name;
      name_events_.push_back({name, false});
      return node;
    }
    case Type::kString: {
      std::string text;
      while (Current().type == Type::kString) text += Take().text;
      return constant(Value::String(std::move(text)));
    }
    case Type::kInteger:
    case Type::kFloat:
      return constant(Take().value);
    case Type::kOperator:
      break;
    default:
      Unexpected("an expression");
  }
  if (SkipOperator("(")) {
    ExprPtr node = TupleOrExpression(true, "", true);
    ExpectOperator(")");
    return node;
  }
  if (SkipOperator("[")) {
    std::vector<ExprPtr> items;
    while (!IsOperator("]")) {
      if (!items.empty()) ExpectOperator(",");
      if (IsOperator("]")) break;
      items.push_back(Expression());
    }
    ExpectOperator("]");
    return Make(Kind::kList, line, std::move(items));
  }
  if (SkipOperator("{")) {
    std::vector<ExprPtr> items;
    while (!IsOperator("}")) {
      if (!items.empty()) ExpectOperator(",");
      if (IsOperator("}")) break;
      items.push_back(Expression());
      ExpectOperator(":");
      items.push_back(Expression());
    }
    ExpectOperator("}");
    return Make(Kind::kDict, line, std::move(items));
  }
  Unexpected("an expression");
}

bool ExpressionParser::AtTupleEnd(std::string_view end_name) const {
  const Type type = Current().type;
  return type == Type::kVariableEnd || type == Type::kBlockEnd || IsOperator(")") ||
         (!end_name.empty() && IsName(end_name));
}

ExprPtr ExpressionParser::TupleOrExpression(bool with_condition, std::string_view end_name, bool in_parentheses) {
  const int line = Current().line;
  std::vector<ExprPtr> items;
  bool is_tuple = false;
  while (true) {
    if (!items.empty()) ExpectOperator(",");
    if (AtTupleEnd(end_name)) break;
    items.push_back(Expression(with_condition));
    if (!IsOperator(",")) break;
    is_tuple = true;
  }
  if (!is_tuple) {
    if (!items.empty()) return std::move(items[0]);
    if (!in_parentheses) Unexpected("an expression");
  }
  return Make(Kind::kTuple, line, std::move(items));
}

ExprPtr ExpressionParser::AssignTarget(std::string_view end_name, bool with_namespace) {
  Nesting nesting(this);
  const int line = Current().line;
  std::vector<ExprPtr> items;
  bool is_tuple = false;
  while (true) {
    if (!items.empty()) ExpectOperator(",");
    if (AtTupleEnd(end_name) || IsOperator("=")) break;
    if (SkipOperator("(")) {
      items.push_back(AssignTarget("", with_namespace));
      ExpectOperator(")");
    } else {
      const int item_line = Current().line;
      if (Current().type != Type::kName) Unexpected("a name to assign to");
      ExprPtr item = Primary(with_namespace);
      if (item->kind == Kind::kConst) FailAt(item_line, "cannot assign to a constant");
      if (item->kind == Kind::kName) name_events_.back().store = true;
      items.push_back(std::move(item));
    }
    if (!IsOperator(",")) break;
    is_tuple = true;
  }
  if (!is_tuple && !items.empty()) return std::move(items[0]);
  if (items.empty()) Unexpected("a name to assign to");
  return Make(Kind::kTuple, line, std::move(items));
}

ExprPtr ExpressionParser::Postfix(ExprPtr node) {
  while (true) {
    if (IsOperator(".") || IsOperator("[")) {
      node = Subscript(std::move(node));
    } else if (IsOperator("(")) {
      node = Call(std::move(node));
    } else {
      return node;
    }
  }
}

ExprPtr ExpressionParser::FilterChain(ExprPtr node) {
  while (true) {
    if (IsOperator("|")) {
      node = Filters(std::move(node), false);
    } else if (IsName("is")) {
      node = Test(std::move(node));
    } else if (IsOperator("(")) {
      node = Call(std::move(node));
    } else {
      return node;
    }
  }
}

ExprPtr ExpressionParser::Subscript(ExprPtr object) {
  const int line = Current().line;
  if (SkipOperator(".")) {
    const Token& token = Current();
    if (token.type == Type::kName) {
      ExprPtr node = Make(Kind::kAttribute, line, Children(std::move(object)));
      node->name = Take().text;
      return node;
    }
    if (token.type != Type::kInteger) Unexpected("the name or number of an attribute");
    ExprPtr key = Make(Kind::kConst, line);
    key->constant = Take().value;
    return Make(Kind::kItem, line, Children(std::move(object), std::move(key)));
  }
  ExpectOperator("[");
  auto bound = [&]() -> ExprPtr {
    return IsOperator(":") || IsOperator("]") || IsOperator(",") ? nullptr : Expression();
  };
  std::vector<ExprPtr> keys;
  while (!IsOperator("]")) {
    if (!keys.empty()) ExpectOperator(",");
    ExprPtr start = IsOperator(":") ? nullptr : Expression();
    if (SkipOperator(":")) {
      std::vector<ExprPtr> children;
      children.push_back(std::move(object));
      children.push_back(std::move(start));
      children.push_back(bound());
      children.push_back(SkipOperator(":") ? bound() : nullptr);
      if (!keys.empty() || !IsOperator("]")) FailAt(line, "a slice stands alone between its brackets");
      ExpectOperator("]");
      return Make(Kind::kSlice, line, std::move(children));
    }
    keys.push_back(std::move(start));
  }
  ExpectOperator("]");
  if (keys.empty()) FailAt(line, "expected an expression between [ and ]");
  ExprPtr key = keys.size() == 1 ? std::move(keys[0]) : Make(Kind::kTuple, line, std::move(keys));
  return Make(Kind::kItem, line, Children(std::move(object), std::move(key)));
}

void ExpressionParser::CallArguments(Expr* call) {
  ExpectOperator("(");
  bool comma = false;
  while (!IsOperator(")")) {
    if (comma) {
      ExpectOperator(",");
      if (IsOperator(")")) break;
    }
    comma = true;
    const int line = Current().line;
    if (SkipOperator("*")) {
      if (call->star != nullptr || call->star_star != nullptr)
        FailAt(line, "*arguments come once, and before **arguments");
      call->star = Expression();
    } else if (SkipOperator("**")) {
      if (call->star_star != nullptr) FailAt(line, "**arguments come once");
      call->star_star = Expression();
    } else if (Current().type == Type::kName && Is(Look(), Type::kOperator, "=")) {
      const std::string name = Take().text;
      Take();
      if (call->star_star != nullptr) FailAt(line, "named arguments come before **arguments");
      for (const auto& [other, value] : call->named) {
        if (other == name) FailAt(line, StrCat("the argument '", name, "' is given twice"));
      }
      call->named.emplace_back(name, Expression());
    } else {
      if (call->star != nullptr || call->star_star != nullptr || !call->named.empty()) {
        FailAt(line, "a positional argument follows a named one");
      }
      call->positional.push_back(Expression());
    }
  }
  ExpectOperator(")");
  SetHeight(call);
}

ExprPtr ExpressionParser::Call(ExprPtr callee) {
  ExprPtr node = Make(Kind::kCall, Current().line, Children(std::move(callee)));
  CallArguments(node.get());
  return node;
}

ExprPtr ExpressionParser::Filters(ExprPtr value, bool start_inline) {
  while (start_inline || IsOperator("|")) {
    if (!start_inline) Take();
    start_inline = false;
    const int line = Current().line;
    std::string name = ExpectAnyName("the name of a filter").text;
    while (SkipOperator(".")) name += StrCat(".", ExpectAnyName("the name of a filter").text);
    ExprPtr node = Make(Kind::kFilter, line, Children(std::move(value)));
    node->name = name;
    if (IsOperator("(")) CallArguments(node.get());
    value = std::move(node);
  }
  return value;
}

ExprPtr ExpressionParser::Test(ExprPtr value) {
  const int line = Current().line;
  ExpectName("is");
  const bool negated = SkipName("not");
  ExprPtr node = Make(Kind::kTest, line, Children(std::move(value)));
  node->name = ExpectAnyName("the name of a test").text;
  while (SkipOperator(".")) node->name += StrCat(".", ExpectAnyName("the name of a test").text);
  const Type type = Current().type;
  if (IsOperator("(")) {
    CallArguments(node.get());
  } else if ((type == Type::kName || type == Type::kString || type == Type::kInteger || type == Type::kFloat ||
              IsOperator("[") || IsOperator("{")) &&
             !IsName("else") && !IsName("or") && !IsName("and")) {
    if (IsName("is")) FailAt(Current().line, "tests with `is` cannot follow one another");
    Nesting nesting(this);
    node->positional.push_back(Postfix(Primary()));
    SetHeight(node.get());
  }
  if (negated) node = Make(Kind::kNot, line, Children(std::move(node)));
  return node;
}

}  // namespace manta::chat_template
