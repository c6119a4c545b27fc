// Recursive descent over tokens.
#include <algorithm>

#include "worker_reward/verifiers/math_expr.h"

namespace manta::reward {
namespace {

using Type = MathToken::Type;
using Op = MathExpr::Op;

constexpr int kMaxNesting = 40;

MathExprPtr Make(Op op, std::vector<MathExprPtr> args, std::string name = "") {
  auto node = std::make_shared<MathExpr>();
  node->op = op;
  node->name = std::move(name);
  for (const MathExprPtr& arg : args) {
    node->decimal = node->decimal || arg->decimal;
    node->percent = node->percent || arg->percent;
    node->plus_minus = node->plus_minus || arg->plus_minus;
  }
  node->args = std::move(args);
  return node;
}

MathExprPtr Number(const std::string& digits) {
  auto node = std::make_shared<MathExpr>();
  node->op = Op::kNumber;
  node->number = Rational::FromDecimal(digits);
  node->approximate = std::strtod(digits.c_str(), nullptr);
  node->decimal = digits.find('.') != std::string::npos;
  return node;
}

bool IsFunction(const std::string& name) {
  static constexpr std::string_view kNames[] = {"sin", "cos", "tan",    "cot",    "sec",    "csc", "log",
                                                "ln",  "exp", "arcsin", "arccos", "arctan", "lg"};
  return std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames);
}

// Gives up, for good, at the first thing that does not fit: every function returns null from then on.
class Parser {
 public:
  explicit Parser(std::span<const MathToken> tokens) : tokens_(tokens) {}

  MathExprPtr Run() {
    MathExprPtr expr = Sum();
    return expr != nullptr && at_ == tokens_.size() ? expr : nullptr;
  }

 private:
  bool Is(Type type, std::string_view text, size_t ahead = 0) const {
    return at_ + ahead < tokens_.size() && tokens_[at_ + ahead].type == type && tokens_[at_ + ahead].text == text;
  }
  bool IsSymbol(char c) const { return Is(Type::kSymbol, std::string_view(&c, 1)); }
  bool Skip(Type type, std::string_view text) {
    if (!Is(type, text)) return false;
    ++at_;
    return true;
  }
  bool SkipSymbol(char c) { return Skip(Type::kSymbol, std::string_view(&c, 1)); }

  MathExprPtr Sum() {
    if (++nesting_ > kMaxNesting) return nullptr;
    MathExprPtr left;
    if (SkipSymbol('-')) {
      left = Product();
      if (left != nullptr) left = Make(Op::kNegate, {left});
    } else if (Skip(Type::kCommand, "pm")) {
      left = Product();
      if (left != nullptr) left = PlusMinus(nullptr, left);
    } else {
      SkipSymbol('+');
      left = Product();
    }
    while (left != nullptr) {
      if (SkipSymbol('+')) {
        MathExprPtr right = Product();
        left = right == nullptr ? nullptr : Make(Op::kAdd, {left, right});
      } else if (SkipSymbol('-')) {
        MathExprPtr right = Product();
        left = right == nullptr ? nullptr : Make(Op::kAdd, {left, Make(Op::kNegate, {right})});
      } else if (Skip(Type::kCommand, "pm")) {
        MathExprPtr right = Product();
        left = right == nullptr ? nullptr : PlusMinus(left, right);
      } else {
        break;
      }
    }
    --nesting_;
    return left;
  }

  static MathExprPtr PlusMinus(MathExprPtr left, MathExprPtr right) {
    std::vector<MathExprPtr> args;
    if (left != nullptr) args.push_back(std::move(left));
    args.push_back(std::move(right));
    auto node = std::make_shared<MathExpr>(*Make(Op::kPlusMinus, std::move(args)));
    node->plus_minus = true;
    return node;
  }

  MathExprPtr Product() {
    MathExprPtr left = Power();
    while (left != nullptr) {
      if (SkipSymbol('*')) {
        MathExprPtr right = SignedPower();
        left = right == nullptr ? nullptr : Make(Op::kMultiply, {left, right});
      } else if (SkipSymbol('/')) {
        MathExprPtr right = SignedPower();
        left = right == nullptr ? nullptr : Make(Op::kDivide, {left, right});
      } else if (MixedNumber(*left)) {
        MathExprPtr right = Power();
        if (right != nullptr && SkipSymbol('/')) {
          MathExprPtr below = Power();
          right = below == nullptr ? nullptr : Make(Op::kDivide, {right, below});
        }
        left = right == nullptr ? nullptr : Make(Op::kAdd, {left, right});
      } else if (BeginsFactor()) {
        MathExprPtr right = Power();
        left = right == nullptr ? nullptr : Make(Op::kMultiply, {left, right});
      } else {
        break;
      }
    }
    return left;
  }

  // 1\frac{4}{5} and "1 4/5" are sums.
  bool MixedNumber(const MathExpr& left) const {
    if (left.op != Op::kNumber || left.decimal || at_ == 0 || tokens_[at_ - 1].type != Type::kNumber) return false;
    auto number = [&](size_t ahead) {
      return at_ + ahead < tokens_.size() && tokens_[at_ + ahead].type == Type::kNumber;
    };
    if (number(0) && tokens_[at_].space_before && Is(Type::kSymbol, "/", 1) && number(2)) return true;
    if (!Is(Type::kCommand, "frac")) return false;
    return number(1) || (Is(Type::kSymbol, "{", 1) && number(2) && Is(Type::kSymbol, "}", 3));
  }

  bool BeginsFactor() const {
    if (at_ >= tokens_.size()) return false;
    const MathToken& token = tokens_[at_];
    switch (token.type) {
      case Type::kLetter:
        return true;
      case Type::kCommand:
        return token.text != "}" && token.text != "row" && token.text != "pm" && token.text != "endmatrix";
      case Type::kSymbol:
        return token.text == "(" || token.text == "{" || token.text == "[";
      default:
        return false;  // two numbers beside each other are no product
    }
  }

  MathExprPtr SignedPower() {
    if (!SkipSymbol('-')) return Power();
    MathExprPtr power = Power();
    return power == nullptr ? nullptr : Make(Op::kNegate, {power});
  }

  MathExprPtr Power() {
    MathExprPtr base = Primary();
    while (base != nullptr) {
      if (SkipSymbol('^')) {
        MathExprPtr exponent = Argument();
        base = exponent == nullptr ? nullptr : Make(Op::kPower, {base, exponent});
      } else if (SkipSymbol('!')) {
        base = Make(Op::kFunction, {base}, "factorial");
      } else if (SkipSymbol('%')) {
        auto node = std::make_shared<MathExpr>(*base);
        node->percent = true;
        base = std::move(node);
      } else {
        break;
      }
    }
    return base;
  }

  // What a command or ^ takes: a braced group, or one token. With `digitwise` a bare number gives its digits one by
  // one, as in \frac43; elsewhere people who write 2^10 mean ten.
  MathExprPtr Argument(bool digitwise = false) {
    if (at_ >= tokens_.size()) return nullptr;
    const MathToken& token = tokens_[at_];
    if (digitwise && token.type == Type::kNumber && token.text.size() > 1 &&
        token.text.find('.') == std::string::npos) {
      const std::string digit = token.text.substr(digit_, 1);
      if (++digit_ == token.text.size()) {
        digit_ = 0;
        ++at_;
      }
      return Number(digit);
    }
    if (token.type == Type::kSymbol && token.text == "-") {
      ++at_;
      MathExprPtr inner = Argument(digitwise);
      return inner == nullptr ? nullptr : Make(Op::kNegate, {inner});
    }
    return Primary();
  }

  MathExprPtr Group(char close) {
    MathExprPtr inner = Sum();
    return inner != nullptr && SkipSymbol(close) ? inner : nullptr;
  }

  MathExprPtr Primary() {
    if (at_ >= tokens_.size() || digit_ != 0) return nullptr;
    const MathToken& token = tokens_[at_++];
    switch (token.type) {
      case Type::kNumber:
        return Number(token.text);
      case Type::kLetter:
        return Letter(token.text);
      case Type::kCommand:
        return Command(token.text);
      case Type::kSymbol:
        if (token.text == "(") return Group(')');
        if (token.text == "[") return Group(']');
        if (token.text == "{") return Group('}');
        if (token.text == "|") {
          MathExprPtr inner = Group('|');
          return inner == nullptr ? nullptr : Make(Op::kFunction, {inner}, "abs");
        }
        return nullptr;
      case Type::kWord:
        return nullptr;
    }
    return nullptr;
  }

  MathExprPtr Letter(std::string name) {
    if (name == "e" || name == "i") return Make(Op::kConstant, {}, name);
    if (SkipSymbol('_')) {
      if (at_ >= tokens_.size()) return nullptr;
      if (SkipSymbol('{')) {
        name += "_";
        while (at_ < tokens_.size() && !IsSymbol('}')) name += tokens_[at_++].text;
        if (!SkipSymbol('}')) return nullptr;
      } else {
        name += "_" + tokens_[at_++].text;
      }
    }
    return Make(Op::kVariable, {}, name);
  }

  MathExprPtr Command(const std::string& name) {
    if (++nesting_ > kMaxNesting) return nullptr;
    MathExprPtr out;
    if (name == "frac" || name == "binom") {
      MathExprPtr above = Argument(true);
      MathExprPtr below = above == nullptr ? nullptr : Argument(true);
      if (below != nullptr)
        out = name == "frac" ? Make(Op::kDivide, {above, below}) : Make(Op::kFunction, {above, below}, "binom");
    } else if (name == "sqrt") {
      MathExprPtr root;
      const bool indexed = SkipSymbol('[');
      if (indexed) root = Group(']');
      MathExprPtr inside = indexed && root == nullptr ? nullptr : Argument();
      if (inside != nullptr) {
        out = root == nullptr ? Make(Op::kFunction, {inside}, "sqrt")
                              : Make(Op::kPower, {inside, Make(Op::kDivide, {Number("1"), root})});
      }
    } else if (name == "pi" || name == "infty") {
      out = Make(Op::kConstant, {}, name);
    } else if (IsFunction(name)) {
      out = Function(name);
    } else if (name.size() > 1) {
      out = Letter("\\" + name);  // \alpha and the like
    }
    --nesting_;
    return out;
  }

  // \sin^2 x, \log_2 8, \ln(x)
  MathExprPtr Function(const std::string& name) {
    MathExprPtr base, exponent;
    if (SkipSymbol('_') && (base = Argument()) == nullptr) return nullptr;
    if (SkipSymbol('^') && (exponent = Argument()) == nullptr) return nullptr;
    MathExprPtr argument = IsSymbol('(') ? Primary() : Factors();
    if (argument == nullptr) return nullptr;
    MathExprPtr value = Make(Op::kFunction, {argument}, name == "lg" ? "log" : name);
    if (base != nullptr) {
      value = Make(Op::kDivide, {Make(Op::kFunction, {argument}, "ln"), Make(Op::kFunction, {base}, "ln")});
    }
    return exponent == nullptr ? value : Make(Op::kPower, {value, exponent});
  }

  // The argument of a function without brackets: \cos 2x takes 2x.
  MathExprPtr Factors() {
    MathExprPtr left = SignedPower();
    while (left != nullptr && BeginsFactor() &&
           !(tokens_[at_].type == Type::kCommand && IsFunction(tokens_[at_].text)) && !IsSymbol('(')) {
      MathExprPtr right = Power();
      left = right == nullptr ? nullptr : Make(Op::kMultiply, {left, right});
    }
    return left;
  }

  std::span<const MathToken> tokens_;
  size_t at_ = 0;
  size_t digit_ = 0;  // how far Argument() has got into the number at at_
  int nesting_ = 0;
};

}  // namespace

MathExprPtr ParseMathExpr(std::span<const MathToken> tokens) {
  return tokens.empty() ? nullptr : Parser(tokens).Run();
}

}  // namespace manta::reward
