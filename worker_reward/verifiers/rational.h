// Exact fractions of 128-bit integers. Operations give nothing where the result does not fit; nothing here can fail
// otherwise. Values are plain and thread-safe to share.
#pragma once

#include <optional>
#include <string_view>

namespace manta::reward {

class Rational {
 public:
  using Int = __int128;

  Rational() = default;
  explicit Rational(Int value) : numerator_(value) {}

  // numerator / denominator in lowest terms with a positive denominator; nothing for a denominator of 0.
  static std::optional<Rational> Make(Int numerator, Int denominator);
  // "12", "3.50", ".5": digits with at most one point.
  static std::optional<Rational> FromDecimal(std::string_view digits);

  Int numerator() const { return numerator_; }
  Int denominator() const { return denominator_; }
  bool is_integer() const { return denominator_ == 1; }
  bool is_zero() const { return numerator_ == 0; }
  // True where it has a finite decimal expansion.
  bool terminates() const;
  double ToDouble() const { return static_cast<double>(numerator_) / static_cast<double>(denominator_); }

  std::optional<Rational> Add(const Rational& other) const;
  std::optional<Rational> Multiply(const Rational& other) const;
  std::optional<Rational> Divide(const Rational& other) const;
  std::optional<Rational> Power(Int exponent) const;
  std::optional<Rational> Negate() const;
  // The exact square root, if it is a fraction too.
  std::optional<Rational> SquareRoot() const;

  bool operator==(const Rational& other) const = default;

 private:
  Int numerator_ = 0, denominator_ = 1;
};

}  // namespace manta::reward
