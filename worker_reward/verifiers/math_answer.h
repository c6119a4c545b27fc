// A whole answer, and when two of them are the same.
//
// An answer is a number or expression; a list of them in any order ("3, 5 and 7", 1 ± √2); a tuple, a set, an interval
// or a union of intervals; a matrix; an equation or inequality; a numeral with a base; or words. Two answers agree
//   - exactly, where both are fractions or terminating decimals (0.5 = 1/2, 70000.01 != 70000);
//   - to `tolerance` (relative), where one is written as a decimal and the other has no finite expansion (0.333333, π);
//   - numerically to 1e-9 at several points otherwise (√12 = 2√3, (x+1)^2 = x^2+2x+1);
// and "50%" agrees with 50 and with 0.5; units, currency and "x =" do not count.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "worker_reward/verifiers/math_expr.h"

namespace manta::reward {

struct MathAnswer {
  enum class Kind {
    kNothing,
    kExpression,
    kList,
    kBracketed,
    kSet,
    kUnion,
    kMatrix,
    kEquation,
    kInequality,
    kBased,
    kWords
  };
  Kind kind = Kind::kNothing;
  MathExprPtr expr;               // of an expression
  std::vector<MathAnswer> items;  // of a list, bracket, set, union; an equation's or inequality's two sides
  char open = 0, close = 0;       // of a bracket: ( [ ) ]
  size_t columns = 0;             // of a matrix: items row by row
  std::string text;               // of words; a numeral with a base; < or <= of an inequality
  std::string base;
};

[[nodiscard]] MathAnswer ParseMathAnswer(std::string_view answer);

// `expired` is asked now and then; the comparison is then given up with false.
[[nodiscard]] bool SameAnswer(const MathAnswer& a, const MathAnswer& b, double tolerance,
                              const std::function<bool()>& expired);

}  // namespace manta::reward
