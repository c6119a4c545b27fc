// When two answers are the same.
#include <algorithm>
#include <cmath>
#include <complex>

#include "worker_reward/verifiers/math_answer.h"

namespace manta::reward {
namespace {

using Kind = MathAnswer::Kind;
using Complex = std::complex<double>;

constexpr double kNumeric = 1e-9;
constexpr uint64_t kPoints = 4;

bool Close(Complex a, Complex b, double tolerance) {
  if (std::isinf(a.real()) || std::isinf(b.real())) return a.real() == b.real();
  const double scale = std::max(std::abs(a), std::abs(b));
  return std::abs(a - b) <= std::max(tolerance * scale, 1e-12);  // false for NaN
}

class Comparer {
 public:
  Comparer(double tolerance, const std::function<bool()>& expired) : tolerance_(tolerance), expired_(expired) {}

  bool Same(const MathAnswer& a, const MathAnswer& b, bool may_swap = true) {
    if (++steps_ > 20000 || expired_()) return false;
    if (a.kind == b.kind) return SameKind(a, b);
    if (OneSided(a, b)) return true;
    return may_swap && Same(b, a, false);
  }

 private:
  bool SameKind(const MathAnswer& a, const MathAnswer& b) {
    switch (a.kind) {
      case Kind::kNothing:
        return false;
      case Kind::kExpression:
        return SameExpression(*a.expr, *b.expr);
      case Kind::kList:
      case Kind::kSet:
      case Kind::kUnion:
        return SameElements(Expanded(a), Expanded(b));
      case Kind::kBracketed:
        return a.open == b.open && a.close == b.close && SameInOrder(a.items, b.items);
      case Kind::kMatrix:
        return a.columns == b.columns && SameInOrder(a.items, b.items);
      case Kind::kEquation:
        return SameEquation(a, b);
      case Kind::kInequality:
        return a.text == b.text && SameInOrder(a.items, b.items);
      case Kind::kBased:
        return a.base == b.base && a.text == b.text;
      case Kind::kWords:
        return a.text == b.text;
    }
    return false;
  }

  // Different kinds that can still say the same; `a` is the more structured one.
  bool OneSided(const MathAnswer& a, const MathAnswer& b) {
    switch (a.kind) {
      case Kind::kEquation: {  // "x = 5" says 5
        const MathAnswer& left = a.items[0];
        const bool named = left.expr != nullptr && left.expr->op == MathExpr::Op::kVariable;
        return named && b.kind != Kind::kEquation && Same(a.items[1], b);
      }
      case Kind::kBased: {  // 52_8 written without its base
        if (b.kind != Kind::kExpression) return false;
        const std::optional<Rational> digits = Rational::FromDecimal(a.text), value = ExactValue(*b.expr);
        return digits && value && *digits == *value;
      }
      case Kind::kSet:
      case Kind::kList:
        if (b.kind == Kind::kExpression || b.kind == Kind::kList || b.kind == Kind::kEquation)
          return SameElements(Expanded(a), Expanded(b));
        return false;
      case Kind::kMatrix:  // a vector as a tuple
        return (a.columns == 1 || a.columns == a.items.size()) && b.kind == Kind::kBracketed && b.open == '(' &&
               b.close == ')' && SameInOrder(a.items, b.items);
      default:
        return false;
    }
  }

  bool SameInOrder(const std::vector<MathAnswer>& a, const std::vector<MathAnswer>& b) {
    if (a.size() != b.size()) return false;
    for (size_t i = 0; i < a.size(); ++i) {
      if (!Same(a[i], b[i])) return false;
    }
    return true;
  }

  bool SameElements(const std::vector<MathAnswer>& a, const std::vector<MathAnswer>& b) {
    if (a.size() != b.size()) return false;
    std::vector<bool> used(b.size(), false);
    for (const MathAnswer& item : a) {
      size_t i = 0;
      while (i < b.size() && (used[i] || !Same(item, b[i]))) ++i;
      if (i == b.size()) return false;
      used[i] = true;
    }
    return true;
  }

  // The elements of a list or set, or the answer alone, with each ± made two.
  static std::vector<MathAnswer> Expanded(const MathAnswer& answer) {
    std::vector<MathAnswer> out;
    const bool many = answer.kind == Kind::kList || answer.kind == Kind::kSet || answer.kind == Kind::kUnion;
    for (const MathAnswer& item : many ? answer.items : std::vector<MathAnswer>{answer}) {
      const MathAnswer& value =
          item.kind == Kind::kEquation && item.items[0].expr->op == MathExpr::Op::kVariable ? item.items[1] : item;
      if (value.kind != Kind::kExpression || !value.expr->plus_minus) {
        out.push_back(value);
        continue;
      }
      for (int sign : {1, -1}) {
        MathAnswer one = value;
        one.expr = WithSign(value.expr, sign);
        out.push_back(std::move(one));
      }
    }
    return out;
  }

  static MathExprPtr WithSign(const MathExprPtr& expr, int sign) {
    if (!expr->plus_minus) return expr;
    auto node = std::make_shared<MathExpr>(*expr);
    node->plus_minus = false;
    for (MathExprPtr& arg : node->args) arg = WithSign(arg, sign);
    if (node->op == MathExpr::Op::kPlusMinus) {
      if (sign < 0) {
        auto negated = std::make_shared<MathExpr>();
        negated->op = MathExpr::Op::kNegate;
        negated->args = {node->args.back()};
        node->args.back() = negated;
      }
      if (node->args.size() == 1) return node->args[0];
      node->op = MathExpr::Op::kAdd;
    }
    return node;
  }

  bool SameExpression(const MathExpr& a, const MathExpr& b) {
    if (a.plus_minus != b.plus_minus) return false;
    if (a.plus_minus) {
      return (SameValue(a, 1, b, 1, 1) && SameValue(a, -1, b, -1, 1)) ||
             (SameValue(a, 1, b, -1, 1) && SameValue(a, -1, b, 1, 1));
    }
    if (SameValue(a, 1, b, 1, 1)) return true;
    if (a.percent == b.percent) return false;
    return a.percent ? SameValue(a, 1, b, 1, 100) : SameValue(b, 1, a, 1, 100);
  }

  // a / divisor == b
  bool SameValue(const MathExpr& a, int sign_a, const MathExpr& b, int sign_b, int divisor) {
    std::optional<Rational> exact_a = ExactValue(a, sign_a);
    const std::optional<Rational> exact_b = ExactValue(b, sign_b);
    if (exact_a && divisor != 1) exact_a = exact_a->Divide(Rational(divisor));
    double tolerance = kNumeric;
    if (exact_a && exact_b) {
      if (*exact_a == *exact_b) return true;
      const bool rounded = (a.decimal && !exact_a->is_integer() && !exact_b->terminates()) ||
                           (b.decimal && !exact_b->is_integer() && !exact_a->terminates());
      if (!rounded) return false;
      tolerance = tolerance_;
    } else if (a.decimal != b.decimal) {
      tolerance = tolerance_;
    }
    // A variable can cancel out, so the values decide, not the names.
    const uint64_t points = Variables(a).empty() && Variables(b).empty() ? 1 : kPoints;
    for (uint64_t seed = 1; seed <= points; ++seed) {
      if (!Close(NumericValue(a, seed, sign_a) / static_cast<double>(divisor), NumericValue(b, seed, sign_b),
                 tolerance))
        return false;
    }
    return true;
  }

  // l = r is l - r = 0, up to a factor that is the same everywhere.
  bool SameEquation(const MathAnswer& a, const MathAnswer& b) {
    if (Same(a.items[0], b.items[0]) && Same(a.items[1], b.items[1])) return true;
    auto difference = [](const MathAnswer& equation, uint64_t seed) {
      return NumericValue(*equation.items[0].expr, seed) - NumericValue(*equation.items[1].expr, seed);
    };
    const Complex factor = difference(a, 1) / difference(b, 1);
    if (!std::isfinite(factor.real()) || std::abs(factor) < 1e-9) return false;
    std::set<std::string> names_a = Variables(*a.items[0].expr), names_b = Variables(*b.items[0].expr);
    names_a.merge(Variables(*a.items[1].expr));
    names_b.merge(Variables(*b.items[1].expr));
    if (names_a.empty() || names_a != names_b) return false;
    for (uint64_t seed = 2; seed <= kPoints + 2; ++seed) {
      if (!Close(difference(a, seed), factor * difference(b, seed), 1e-7)) return false;
    }
    return true;
  }

  double tolerance_;
  const std::function<bool()>& expired_;
  int steps_ = 0;
};

}  // namespace

bool SameAnswer(const MathAnswer& a, const MathAnswer& b, double tolerance, const std::function<bool()>& expired) {
  return Comparer(tolerance, expired).Same(a, b);
}

}  // namespace manta::reward
