// Expressions of an answer: parsed from tokens, evaluated exactly where that is possible and numerically otherwise.
//
// The evaluator knows arithmetic, powers, roots, factorials, binomials, and the usual functions; it has no names, no
// calls and no loops, and its work is bounded by the size of what it reads. Thread-safe; expressions are immutable.
#pragma once

#include <complex>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "worker_reward/verifiers/math_tokens.h"
#include "worker_reward/verifiers/rational.h"

namespace manta::reward {

struct MathExpr {
  enum class Op { kNumber, kVariable, kConstant, kAdd, kMultiply, kDivide, kPower, kNegate, kFunction, kPlusMinus };
  Op op;
  std::optional<Rational> number;  // of a number; nothing where it does not fit
  double approximate = 0;          // of a number
  std::string name;                // of a variable, constant (pi, e, i, infty) or function
  std::vector<std::shared_ptr<const MathExpr>> args;
  bool decimal = false;     // written with a decimal point, here or below
  bool percent = false;     // written with %, here or below
  bool plus_minus = false;  // has ± here or below
};
using MathExprPtr = std::shared_ptr<const MathExpr>;

// Nothing where the tokens are not one expression.
MathExprPtr ParseMathExpr(std::span<const MathToken> tokens);

// The exact value, where it is a fraction that fits. `sign`: what ± stands for.
std::optional<Rational> ExactValue(const MathExpr& expr, int sign = 1);

// The value where variables have the values that `seed` gives them.
std::complex<double> NumericValue(const MathExpr& expr, uint64_t seed, int sign = 1);

std::set<std::string> Variables(const MathExpr& expr);

}  // namespace manta::reward
