// Operators, from the loosest to the tightest.
#include <algorithm>

#include "common/template/expression_parser.h"

namespace manta::chat_template {
namespace {

using Type = Token::Type;
using Kind = Expr::Kind;

}  // namespace

ExprPtr ExpressionParser::Condition() {
  int line = Current().line;
  ExprPtr node = Or();
  while (SkipName("if")) {
    std::vector<ExprPtr> children;
    children.push_back(Or());
    children.push_back(std::move(node));
    children.push_back(SkipName("else") ? Expression() : nullptr);
    node = Make(Kind::kCondition, line, std::move(children));
    line = Current().line;
  }
  return node;
}

ExprPtr ExpressionParser::Or() {
  const int line = Current().line;
  ExprPtr left = And();
  while (SkipName("or")) left = Make(Kind::kOr, line, Children(std::move(left), And()));
  return left;
}

ExprPtr ExpressionParser::And() {
  const int line = Current().line;
  ExprPtr left = Not();
  while (SkipName("and")) left = Make(Kind::kAnd, line, Children(std::move(left), Not()));
  return left;
}

ExprPtr ExpressionParser::Not() {
  const int line = Current().line;
  if (!SkipName("not")) return Compare();
  Nesting nesting(this);
  return Make(Kind::kNot, line, Children(Not()));
}

ExprPtr ExpressionParser::Compare() {
  const int line = Current().line;
  std::vector<ExprPtr> operands;
  std::vector<std::string> operators;
  operands.push_back(Sum());
  static constexpr std::string_view kComparisons[] = {"==", "!=", "<", "<=", ">", ">="};
  while (true) {
    if (Current().type == Type::kOperator &&
        std::find(std::begin(kComparisons), std::end(kComparisons), Current().text) != std::end(kComparisons)) {
      operators.push_back(Take().text);
    } else if (SkipName("in")) {
      operators.push_back("in");
    } else if (IsName("not") && Is(Look(), Type::kName, "in")) {
      Take();
      Take();
      operators.push_back("not in");
    } else {
      break;
    }
    operands.push_back(Sum());
  }
  if (operators.empty()) return std::move(operands[0]);
  ExprPtr node = Make(Kind::kCompare, line, std::move(operands));
  node->operators = std::move(operators);
  return node;
}

ExprPtr ExpressionParser::Sum() {
  const int line = Current().line;
  ExprPtr left = Concat();
  while (IsOperator("+") || IsOperator("-")) {
    const std::string op = Take().text;
    left = Make(Kind::kBinary, line, Children(std::move(left), Concat()));
    left->name = op;
  }
  return left;
}

ExprPtr ExpressionParser::Concat() {
  const int line = Current().line;
  std::vector<ExprPtr> parts;
  parts.push_back(Product());
  while (SkipOperator("~")) parts.push_back(Product());
  if (parts.size() == 1) return std::move(parts[0]);
  return Make(Kind::kConcat, line, std::move(parts));
}

ExprPtr ExpressionParser::Product() {
  const int line = Current().line;
  ExprPtr left = Power();
  while (IsOperator("*") || IsOperator("/") || IsOperator("//") || IsOperator("%")) {
    const std::string op = Take().text;
    left = Make(Kind::kBinary, line, Children(std::move(left), Power()));
    left->name = op;
  }
  return left;
}

ExprPtr ExpressionParser::Power() {
  const int line = Current().line;
  ExprPtr left = Unary();
  while (SkipOperator("**")) {  // Jinja, unlike Python, groups from the left
    left = Make(Kind::kBinary, line, Children(std::move(left), Unary()));
    left->name = "**";
  }
  return left;
}

}  // namespace manta::chat_template
