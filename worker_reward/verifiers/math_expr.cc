#include "worker_reward/verifiers/math_expr.h"

#include <cmath>
#include <numbers>

#include "absl/hash/hash.h"

namespace manta::reward {
namespace {

using Op = MathExpr::Op;
using Complex = std::complex<double>;

std::optional<Rational> Factorial(const Rational& n) {
  if (!n.is_integer() || n.numerator() < 0 || n.numerator() > 33) return std::nullopt;
  Rational::Int out = 1;
  for (Rational::Int i = 2; i <= n.numerator(); ++i) out *= i;
  return Rational::Make(out, 1);
}

std::optional<Rational> Binomial(const Rational& n, const Rational& k) {
  if (!n.is_integer() || !k.is_integer() || k.numerator() < 0 || n.numerator() < k.numerator() ||
      n.numerator() > 1000) {
    return std::nullopt;
  }
  std::optional<Rational> out = Rational(1);
  for (Rational::Int i = 1; i <= k.numerator() && out; ++i) {
    const std::optional<Rational> factor = Rational::Make(n.numerator() - k.numerator() + i, i);
    out = factor ? out->Multiply(*factor) : std::nullopt;
  }
  return out;
}

std::optional<Rational> ExactFunction(const std::string& name, const Rational& x) {
  if (name == "sqrt") return x.SquareRoot();
  if (name == "abs") return x.numerator() < 0 ? x.Negate() : x;
  if (name == "factorial") return Factorial(x);
  return std::nullopt;
}

Complex NumericFunction(const std::string& name, Complex x) {
  if (name == "sqrt") return std::sqrt(x);
  if (name == "abs") return std::abs(x);
  if (name == "factorial") return std::tgamma(x.real() + 1);
  if (name == "sin") return std::sin(x);
  if (name == "cos") return std::cos(x);
  if (name == "tan") return std::tan(x);
  if (name == "cot") return 1.0 / std::tan(x);
  if (name == "sec") return 1.0 / std::cos(x);
  if (name == "csc") return 1.0 / std::sin(x);
  if (name == "arcsin") return std::asin(x);
  if (name == "arccos") return std::acos(x);
  if (name == "arctan") return std::atan(x);
  if (name == "exp") return std::exp(x);
  if (name == "ln") return std::log(x);
  if (name == "log") return std::log10(x);
  return std::nan("");
}

Complex Constant(const std::string& name) {
  if (name == "pi") return std::numbers::pi;
  if (name == "e") return std::numbers::e;
  if (name == "i") return Complex(0, 1);
  return INFINITY;
}

}  // namespace

std::optional<Rational> ExactValue(const MathExpr& expr, int sign) {
  auto arg = [&](size_t i) { return ExactValue(*expr.args[i], sign); };
  switch (expr.op) {
    case Op::kNumber:
      return expr.number;
    case Op::kVariable:
    case Op::kConstant:
      return std::nullopt;
    case Op::kNegate: {
      const auto a = arg(0);
      return a ? a->Negate() : std::nullopt;
    }
    case Op::kPlusMinus: {
      auto last = arg(expr.args.size() - 1);
      if (last && sign < 0) last = last->Negate();
      if (!last || expr.args.size() == 1) return last;
      const auto first = arg(0);
      return first ? first->Add(*last) : std::nullopt;
    }
    case Op::kFunction: {
      const auto a = arg(0);
      if (!a) return std::nullopt;
      if (expr.name != "binom") return ExactFunction(expr.name, *a);
      const auto b = arg(1);
      return b ? Binomial(*a, *b) : std::nullopt;
    }
    default:
      break;
  }
  const auto a = arg(0);
  if (!a) return std::nullopt;
  const auto b = arg(1);
  if (!b) return std::nullopt;
  switch (expr.op) {
    case Op::kAdd:
      return a->Add(*b);
    case Op::kMultiply:
      return a->Multiply(*b);
    case Op::kDivide:
      return a->Divide(*b);
    default:
      if (!b->is_integer() || (a->is_zero() && b->numerator() <= 0)) {
        const auto root = b->denominator() == 2 ? a->SquareRoot() : std::nullopt;
        return root && !root->is_zero() ? root->Power(b->numerator()) : std::nullopt;
      }
      return a->Power(b->numerator());
  }
}

Complex NumericValue(const MathExpr& expr, uint64_t seed, int sign) {
  auto arg = [&](size_t i) { return NumericValue(*expr.args[i], seed, sign); };
  switch (expr.op) {
    case Op::kNumber:
      return expr.approximate;
    case Op::kVariable: {  // somewhere in [0.6, 2.6), the same for a name wherever it stands
      const uint64_t mixed = (std::hash<std::string>()(expr.name) ^ (seed * 0x9E3779B97F4A7C15u)) * 0xBF58476D1CE4E5B9u;
      return 0.6 + 2.0 * static_cast<double>(mixed >> 11) * 0x1p-53;
    }
    case Op::kConstant:
      return Constant(expr.name);
    case Op::kNegate:
      return -arg(0);
    case Op::kPlusMinus: {
      const Complex last = static_cast<double>(sign) * arg(expr.args.size() - 1);
      return expr.args.size() == 1 ? last : arg(0) + last;
    }
    case Op::kFunction:
      if (expr.name == "binom") {
        const double n = arg(0).real(), k = arg(1).real();
        return std::exp(std::lgamma(n + 1) - std::lgamma(k + 1) - std::lgamma(n - k + 1));
      }
      return NumericFunction(expr.name, arg(0));
    case Op::kAdd:
      return arg(0) + arg(1);
    case Op::kMultiply:
      return arg(0) * arg(1);
    case Op::kDivide:
      return arg(0) / arg(1);
    case Op::kPower: {
      const Complex base = arg(0), exponent = arg(1);
      if (base == 0.0) return exponent == 0.0 ? 1.0 : 0.0;
      if (base.imag() == 0 && exponent.imag() == 0) {
        const double x = base.real(), y = exponent.real();
        if (x > 0 || y == std::floor(y)) return std::pow(x, y);
        // An odd root of a negative number is real to whoever writes \sqrt[3]{-8}.
        const double inverse = std::round(1 / y);
        if (std::abs(y * inverse - 1) < 1e-12 && std::fmod(std::abs(inverse), 2) == 1) return -std::pow(-x, y);
      }
      return std::pow(base, exponent);
    }
  }
  return std::nan("");
}

std::set<std::string> Variables(const MathExpr& expr) {
  std::set<std::string> out;
  if (expr.op == Op::kVariable) out.insert(expr.name);
  for (const MathExprPtr& arg : expr.args) out.merge(Variables(*arg));
  return out;
}

}  // namespace manta::reward
