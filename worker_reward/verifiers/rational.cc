#include "worker_reward/verifiers/rational.h"

#include <cmath>

namespace manta::reward {
namespace {

using Int = Rational::Int;

// Keeps away from the type's ends, so that negation and magnitudes never overflow.
constexpr Int kMost = Int{1} << 126;

bool Fits(Int value) {
  return value > -kMost && value < kMost;
}

std::optional<Int> Times(Int a, Int b) {
  Int out;
  if (__builtin_mul_overflow(a, b, &out) || !Fits(out)) return std::nullopt;
  return out;
}

Int Gcd(Int a, Int b) {
  if (a < 0) a = -a;
  while (b != 0) {
    const Int rest = a % b;
    a = b;
    b = rest;
  }
  return a;
}

std::optional<Int> ExactRoot(Int value) {
  if (value < 0) return std::nullopt;
  const Int guess = static_cast<Int>(std::sqrt(static_cast<long double>(value)));
  for (Int root = guess > 2 ? guess - 2 : 0; root <= guess + 2; ++root) {
    if (root * root == value) return root;
  }
  return std::nullopt;
}

}  // namespace

std::optional<Rational> Rational::Make(Int numerator, Int denominator) {
  if (denominator == 0 || !Fits(numerator) || !Fits(denominator)) return std::nullopt;
  const Int divisor = Gcd(numerator, denominator < 0 ? -denominator : denominator);
  Rational out;
  out.numerator_ = (denominator < 0 ? -numerator : numerator) / divisor;
  out.denominator_ = (denominator < 0 ? -denominator : denominator) / divisor;
  return out;
}

std::optional<Rational> Rational::FromDecimal(std::string_view digits) {
  Int numerator = 0, denominator = 1;
  bool after_point = false, any = false;
  for (char c : digits) {
    if (c == '.') {
      if (after_point) return std::nullopt;
      after_point = true;
      continue;
    }
    if (c < '0' || c > '9') return std::nullopt;
    any = true;
    const std::optional<Int> shifted = Times(numerator, 10);
    if (!shifted || !Fits(*shifted + (c - '0'))) return std::nullopt;
    numerator = *shifted + (c - '0');
    if (after_point) {
      const std::optional<Int> longer = Times(denominator, 10);
      if (!longer) return std::nullopt;
      denominator = *longer;
    }
  }
  if (!any) return std::nullopt;
  return Make(numerator, denominator);
}

bool Rational::terminates() const {
  Int rest = denominator_;
  while (rest % 2 == 0) rest /= 2;
  while (rest % 5 == 0) rest /= 5;
  return rest == 1;
}

std::optional<Rational> Rational::Add(const Rational& other) const {
  const std::optional<Int> a = Times(numerator_, other.denominator_), b = Times(other.numerator_, denominator_),
                           c = Times(denominator_, other.denominator_);
  if (!a || !b || !c) return std::nullopt;
  return Make(*a + *b, *c);
}

std::optional<Rational> Rational::Multiply(const Rational& other) const {
  const std::optional<Int> a = Times(numerator_, other.numerator_), b = Times(denominator_, other.denominator_);
  if (!a || !b) return std::nullopt;
  return Make(*a, *b);
}

std::optional<Rational> Rational::Divide(const Rational& other) const {
  const std::optional<Int> a = Times(numerator_, other.denominator_), b = Times(denominator_, other.numerator_);
  if (!a || !b) return std::nullopt;
  return Make(*a, *b);
}

std::optional<Rational> Rational::Power(Int exponent) const {
  if (exponent > 1000 || exponent < -1000) return std::nullopt;
  const bool inverse = exponent < 0;
  std::optional<Rational> out = Rational(1);
  for (Int i = inverse ? -exponent : exponent; i > 0 && out; --i) out = out->Multiply(*this);
  if (out && inverse) return Make(out->denominator_, out->numerator_);
  return out;
}

std::optional<Rational> Rational::Negate() const {
  return Make(-numerator_, denominator_);
}

std::optional<Rational> Rational::SquareRoot() const {
  const std::optional<Int> a = ExactRoot(numerator_), b = ExactRoot(denominator_);
  if (!a || !b) return std::nullopt;
  return Make(*a, *b);
}

}  // namespace manta::reward
