#include "common/template/parser.h"

#include <algorithm>

#include "common/base/strings.h"
#include "common/template/builtins.h"
#include "common/template/expression_parser.h"

namespace manta::chat_template {
namespace {

using Type = Token::Type;
using StmtPtr = std::unique_ptr<Stmt>;

std::string Alternatives(const std::vector<std::string_view>& tags) {
  std::string out;
  for (std::string_view tag : tags) out += StrCat(out.empty() ? "" : " %} or {% ", tag);
  return out;
}

class Parser : ExpressionParser {
 public:
  explicit Parser(std::vector<Token> tokens) : ExpressionParser(std::move(tokens)) {}

  Body Run() {
    Body body = Statements({});
    return body;
  }

 private:
  // Up to a tag that begins with one of `ends` (whose name is then the current token), or the end of the source.
  Body Statements(const std::vector<std::string_view>& ends) {
    Nesting nesting(this);
    Body body;
    const int begin_line = Current().line;
    while (true) {
      const Token& token = Current();
      switch (token.type) {
        case Type::kEnd:
          if (ends.empty()) return body;
          FailAt(begin_line, StrCat("a block is not closed: expected {% ", Alternatives(ends),
                                    " %}, found the end of the template"));
        case Type::kText: {
          StmtPtr text = Make(Stmt::Kind::kText);
          text->name = Take().text;
          body.push_back(std::move(text));
          break;
        }
        case Type::kVariableBegin: {
          Take();
          StmtPtr output = Make(Stmt::Kind::kOutput);
          output->exprs.push_back(TupleOrExpression());
          if (Current().type != Type::kVariableEnd) Unexpected("'}}'");
          Take();
          body.push_back(std::move(output));
          break;
        }
        case Type::kBlockBegin:
          Take();
          if (Current().type != Type::kName) Unexpected("the name of a tag");
          if (std::find(ends.begin(), ends.end(), Current().text) != ends.end()) return body;
          body.push_back(Statement());
          ExpectBlockEnd();
          break;
        default:
          Unexpected("text or a tag");
      }
    }
  }

  void ExpectBlockEnd() {
    if (Current().type != Type::kBlockEnd) Unexpected("'%}'");
    Take();
  }

  // The body of a block: behind its tag's end, up to one of `ends`.
  Body BlockBody(const std::vector<std::string_view>& ends) {
    SkipOperator(":");
    ExpectBlockEnd();
    return Statements(ends);
  }
  Body BlockBody(std::string_view end) {
    Body body = BlockBody(std::vector<std::string_view>{end});
    Take();
    return body;
  }

  // A body that is a function of its own: no loop around it can be left from inside.
  Body FunctionBody(std::string_view end) {
    const int loops = std::exchange(loops_, 0);
    Body body = BlockBody(end);
    loops_ = loops;
    return body;
  }

  StmtPtr Make(Stmt::Kind kind) const {
    auto stmt = std::make_unique<Stmt>();
    stmt->kind = kind;
    stmt->line = Current().line;
    return stmt;
  }

  StmtPtr Statement() {
    const std::string tag = Current().text;
    if (tag == "for") return For();
    if (tag == "if") return If();
    if (tag == "set") return Set();
    if (tag == "macro") return Macro();
    if (tag == "call") return CallBlock();
    if (tag == "filter") return FilterBlock();
    if (tag == "with") return With();
    if (tag == "print") return Print();
    if (tag == "block") return Block();
    if (tag == "generation") return Simple(Stmt::Kind::kGeneration, "endgeneration");
    if (tag == "autoescape") return Simple(Stmt::Kind::kAutoescape, "endautoescape");
    if (tag == "break" || tag == "continue") {
      if (loops_ == 0) FailAt(Current().line, StrCat("'", tag, "' stands outside a loop"));
      StmtPtr stmt = Make(tag == "break" ? Stmt::Kind::kBreak : Stmt::Kind::kContinue);
      Take();
      return stmt;
    }
    if (tag == "extends" || tag == "include" || tag == "import" || tag == "from") return Unsupported(tag);
    FailAt(Current().line, StrCat("unknown tag '", tag, "'"));
  }

  StmtPtr For() {
    StmtPtr stmt = Make(Stmt::Kind::kFor);
    Take();
    const size_t before = name_events_.size();
    stmt->target = AssignTarget("in", false);
    ExpectName("in");
    stmt->exprs.push_back(TupleOrExpression(false, "recursive"));
    stmt->exprs.push_back(SkipName("if") ? Expression() : nullptr);
    stmt->recursive = SkipName("recursive");
    // A recursive loop's body is called, yet Jinja's break works in it: the loop is inside the function.
    ++loops_;
    stmt->body = BlockBody(std::vector<std::string_view>{"endfor", "else"});
    --loops_;
    for (size_t i = before; i < name_events_.size(); ++i) {
      if (name_events_[i].store && name_events_[i].name == "loop")
        FailAt(stmt->line, "`loop` is the loop's own: it cannot be set");
    }
    if (Take().text == "else") stmt->otherwise = BlockBody("endfor");
    return stmt;
  }

  StmtPtr If() {
    StmtPtr stmt = Make(Stmt::Kind::kIf);
    Take();
    while (true) {
      ExprPtr test = TupleOrExpression(false);
      Body body = BlockBody(std::vector<std::string_view>{"elif", "else", "endif"});
      stmt->branches.emplace_back(std::move(test), std::move(body));
      const std::string tag = Take().text;
      if (tag == "elif") continue;
      if (tag == "else") stmt->otherwise = BlockBody("endif");
      return stmt;
    }
  }

  StmtPtr Set() {
    StmtPtr stmt = Make(Stmt::Kind::kSet);
    Take();
    stmt->target = AssignTarget("", true);
    if (SkipOperator("=")) {
      stmt->exprs.push_back(TupleOrExpression());
      return stmt;
    }
    stmt->kind = Stmt::Kind::kSetBlock;
    stmt->exprs.push_back(IsOperator("|") ? Filters(nullptr, false) : nullptr);
    stmt->body = BlockBody("endset");
    return stmt;
  }

  void ParseSignature(Signature* signature) {
    ExpectOperator("(");
    while (!IsOperator(")")) {
      if (!signature->names.empty()) ExpectOperator(",");
      const int line = Current().line;
      signature->names.push_back(ExpectAnyName("the name of a parameter").text);
      if (SkipOperator("=")) {
        signature->defaults.push_back(Expression());
      } else if (!signature->defaults.empty()) {
        FailAt(line, "a parameter without a default follows one with a default");
      }
    }
    ExpectOperator(")");
  }

  void MacroBody(Stmt* stmt, std::string_view end) {
    const size_t before = name_events_.size();
    stmt->body = FunctionBody(end);
    Signature& signature = stmt->signature;
    auto parameter = [&](std::string_view name) {
      return std::find(signature.names.begin(), signature.names.end(), name) - signature.names.begin();
    };
    const auto count = static_cast<std::ptrdiff_t>(signature.names.size());
    signature.uses_caller = Mentions(before, "caller");
    signature.uses_kwargs = Mentions(before, "kwargs") && parameter("kwargs") == count;
    signature.uses_varargs = Mentions(before, "varargs") && parameter("varargs") == count;
    const std::ptrdiff_t caller = parameter("caller");
    if (signature.uses_caller && caller < count &&
        caller < count - static_cast<std::ptrdiff_t>(signature.defaults.size())) {
      FailAt(stmt->line, "a macro's parameter `caller` must have a default or be left out");
    }
  }

  StmtPtr Macro() {
    StmtPtr stmt = Make(Stmt::Kind::kMacro);
    Take();
    stmt->name = ExpectAnyName("the name of a macro").text;
    ParseSignature(&stmt->signature);
    MacroBody(stmt.get(), "endmacro");
    return stmt;
  }

  StmtPtr CallBlock() {
    StmtPtr stmt = Make(Stmt::Kind::kCallBlock);
    Take();
    if (IsOperator("(")) ParseSignature(&stmt->signature);
    stmt->exprs.push_back(Expression());
    if (stmt->exprs[0]->kind != Expr::Kind::kCall) FailAt(stmt->line, "expected a call in a call block");
    MacroBody(stmt.get(), "endcall");
    return stmt;
  }

  StmtPtr FilterBlock() {
    StmtPtr stmt = Make(Stmt::Kind::kFilterBlock);
    Take();
    stmt->exprs.push_back(Filters(nullptr, true));
    stmt->body = BlockBody("endfilter");
    return stmt;
  }

  StmtPtr With() {
    StmtPtr stmt = Make(Stmt::Kind::kWith);
    Take();
    while (Current().type != Type::kBlockEnd) {
      if (!stmt->targets.empty()) ExpectOperator(",");
      stmt->targets.push_back(AssignTarget("", false));
      ExpectOperator("=");
      stmt->exprs.push_back(Expression());
    }
    stmt->body = BlockBody("endwith");
    return stmt;
  }

  StmtPtr Print() {
    StmtPtr stmt = Make(Stmt::Kind::kOutput);
    Take();
    while (Current().type != Type::kBlockEnd) {
      if (!stmt->exprs.empty()) ExpectOperator(",");
      stmt->exprs.push_back(Expression());
    }
    return stmt;
  }

  StmtPtr Block() {
    StmtPtr stmt = Make(Stmt::Kind::kBlock);
    Take();
    stmt->name = ExpectAnyName("the name of a block").text;
    SkipName("scoped");
    SkipName("required");
    stmt->body = FunctionBody("endblock");
    SkipName(stmt->name);
    return stmt;
  }

  StmtPtr Simple(Stmt::Kind kind, std::string_view end) {
    StmtPtr stmt = Make(kind);
    Take();
    if (kind == Stmt::Kind::kAutoescape) {
      stmt->exprs.push_back(Expression());
      stmt->body = BlockBody(end);
    } else {
      stmt->body = FunctionBody(end);
    }
    return stmt;
  }

  StmtPtr Unsupported(const std::string& tag) {
    StmtPtr stmt = Make(Stmt::Kind::kUnsupported);
    stmt->name = StrCat("'", tag, "' needs another template: a chat template stands alone");
    while (Current().type != Type::kBlockEnd && Current().type != Type::kEnd) Take();
    return stmt;
  }

  int loops_ = 0;
};

// Names of filters and tests that do not exist are errors of the source, except under a condition that may never hold.
class NameCheck {
 public:
  void Visit(const Body& body, bool soft) {
    for (const auto& stmt : body) Visit(*stmt, soft);
  }

 private:
  void Visit(const Stmt& stmt, bool soft) {
    const bool is_if = stmt.kind == Stmt::Kind::kIf;
    const bool own_frame = !is_if && stmt.kind != Stmt::Kind::kOutput && stmt.kind != Stmt::Kind::kSet;
    for (const auto& expr : stmt.exprs) Visit(expr.get(), soft);
    for (const auto& expr : stmt.signature.defaults) Visit(expr.get(), false);
    for (const auto& [test, body] : stmt.branches) {
      Visit(test.get(), true);
      Visit(body, true);
    }
    Visit(stmt.body, is_if || (soft && !own_frame));
    Visit(stmt.otherwise, is_if || (soft && !own_frame));
  }

  void Visit(const Expr* expr, bool soft) {
    if (expr == nullptr) return;
    if (expr->kind == Expr::Kind::kCondition) soft = true;
    if (!soft && expr->kind == Expr::Kind::kFilter && FindFilter(expr->name) == nullptr) {
      throw SyntaxFailure{expr->line, UnknownFilter(expr->name)};
    }
    if (!soft && expr->kind == Expr::Kind::kTest && FindTest(expr->name) == nullptr) {
      throw SyntaxFailure{expr->line, UnknownTest(expr->name)};
    }
    for (const auto& child : expr->children) Visit(child.get(), soft);
    for (const auto& child : expr->positional) Visit(child.get(), soft);
    for (const auto& [name, child] : expr->named) Visit(child.get(), soft);
    Visit(expr->star.get(), soft);
    Visit(expr->star_star.get(), soft);
  }
};

}  // namespace

Body ParseTemplate(std::string_view source) {
  Body body = Parser(Tokenize(source)).Run();
  NameCheck().Visit(body, false);
  return body;
}

}  // namespace manta::chat_template
