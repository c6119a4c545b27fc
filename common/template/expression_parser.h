// The half of the parser that reads expressions; parser.cc, which reads statements, derives from it.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "common/template/ast.h"
#include "common/template/lexer.h"

namespace manta::chat_template {

// A list of nodes, which an initializer list cannot make of what is only movable.
inline std::vector<ExprPtr> Children(ExprPtr a, ExprPtr b) {
  std::vector<ExprPtr> out;
  out.push_back(std::move(a));
  out.push_back(std::move(b));
  return out;
}

inline std::vector<ExprPtr> Children(ExprPtr a) {
  std::vector<ExprPtr> out;
  out.push_back(std::move(a));
  return out;
}

class ExpressionParser {
 protected:
  explicit ExpressionParser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  const Token& Current() const { return tokens_[at_]; }
  const Token& Look() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  const Token& Take() { return tokens_[at_ + 1 < tokens_.size() ? at_++ : at_]; }
  bool IsOperator(std::string_view op) const { return Is(Current(), Token::Type::kOperator, op); }
  bool IsName(std::string_view name) const { return Is(Current(), Token::Type::kName, name); }
  static bool Is(const Token& token, Token::Type type, std::string_view text) {
    return token.type == type && token.text == text;
  }
  bool SkipOperator(std::string_view op);
  bool SkipName(std::string_view name);
  void ExpectOperator(std::string_view op);
  void ExpectName(std::string_view name);
  const Token& ExpectAnyName(std::string_view what);
  [[noreturn]] void FailAt(int line, std::string message) const;
  [[noreturn]] void Unexpected(std::string_view expected) const;

  ExprPtr Expression(bool with_condition = true);
  // One expression, or several with commas between them. `end_name`: a word that ends it too.
  ExprPtr TupleOrExpression(bool with_condition = true, std::string_view end_name = "", bool in_parentheses = false);
  ExprPtr AssignTarget(std::string_view end_name, bool with_namespace);
  ExprPtr Filters(ExprPtr value, bool start_inline);

  // Every name that was read or set, in order: tells whether a body speaks of `loop`, `caller` and the like.
  struct NameEvent {
    std::string name;
    bool store;
  };
  std::vector<NameEvent> name_events_;
  bool Mentions(size_t since, std::string_view name) const;

  // Bounds how deeply the parser calls itself.
  class Nesting {
   public:
    explicit Nesting(ExpressionParser* parser);
    ~Nesting() { --parser_->nesting_; }

   private:
    ExpressionParser* parser_;
  };

  ExprPtr Make(Expr::Kind kind, int line, std::vector<ExprPtr> children = {}) const;

 private:
  ExprPtr Condition();
  ExprPtr Or();
  ExprPtr And();
  ExprPtr Not();
  ExprPtr Compare();
  ExprPtr Sum();
  ExprPtr Concat();
  ExprPtr Product();
  ExprPtr Power();
  ExprPtr Unary(bool with_filter = true);
  ExprPtr Primary(bool with_namespace = false);
  ExprPtr Postfix(ExprPtr node);
  ExprPtr FilterChain(ExprPtr node);
  ExprPtr Subscript(ExprPtr node);
  ExprPtr Call(ExprPtr node);
  ExprPtr Test(ExprPtr node);
  void CallArguments(Expr* call);
  void SetHeight(Expr* node) const;
  bool AtTupleEnd(std::string_view end_name) const;

  std::vector<Token> tokens_;
  size_t at_ = 0;
  int nesting_ = 0;
};

}  // namespace manta::chat_template
