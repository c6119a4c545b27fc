#include "worker_reward/verifiers/math_answer.h"

#include <algorithm>
#include <optional>

namespace manta::reward {
namespace {

using Kind = MathAnswer::Kind;
using Type = MathToken::Type;
using Tokens = std::span<const MathToken>;

constexpr int kMaxNesting = 12;

bool Is(const MathToken& token, Type type, std::string_view text) {
  return token.type == type && token.text == text;
}
bool IsSymbol(const MathToken& token, char c) {
  return token.type == Type::kSymbol && token.text[0] == c;
}

// +1 where a bracket opens, -1 where one closes.
int BracketStep(const MathToken& token) {
  if (token.type == Type::kSymbol && token.text.size() == 1) {
    if (std::string_view("([{").find(token.text[0]) != std::string_view::npos) return 1;
    if (std::string_view(")]}").find(token.text[0]) != std::string_view::npos) return -1;
  }
  if (token.type == Type::kCommand) {
    if (token.text == "{" || token.text == "matrix") return 1;
    if (token.text == "}" || token.text == "endmatrix") return -1;
  }
  return 0;
}

template <typename F>
std::vector<Tokens> Split(Tokens tokens, F is_separator) {
  std::vector<Tokens> parts;
  int depth = 0;
  size_t begin = 0;
  for (size_t i = 0; i < tokens.size(); ++i) {
    depth += BracketStep(tokens[i]);
    if (depth == 0 && BracketStep(tokens[i]) == 0 && is_separator(tokens[i])) {
      parts.push_back(tokens.subspan(begin, i - begin));
      begin = i + 1;
    }
  }
  parts.push_back(tokens.subspan(begin));
  return parts;
}

bool IsListSeparator(const MathToken& token) {
  return IsSymbol(token, ',') || IsSymbol(token, ';') || Is(token, Type::kWord, "and") ||
         Is(token, Type::kWord, "or") || Is(token, Type::kCommand, "row");
}

// The first and last token are a pair of brackets around all the rest.
bool IsBracketed(Tokens tokens) {
  if (tokens.size() < 2 || BracketStep(tokens.front()) != 1 || BracketStep(tokens.back()) != -1) return false;
  int depth = 0;
  for (size_t i = 0; i + 1 < tokens.size(); ++i) {
    depth += BracketStep(tokens[i]);
    if (depth == 0) return false;
  }
  return true;
}

MathAnswer ParseList(Tokens tokens, int nesting);

// Words at the end of a quantity are its unit; what names a quantity before a colon or = is not part of it.
Tokens WithoutUnits(Tokens tokens) {
  auto has_math = [](Tokens range) {
    return std::any_of(range.begin(), range.end(),
                       [](const MathToken& t) { return t.type != Type::kWord && t.type != Type::kSymbol; });
  };
  for (size_t i = 1; i < tokens.size(); ++i) {
    if (tokens[i].type != Type::kWord || !has_math(tokens.first(i))) continue;
    // "inches^2", "miles/hour", "cents per pound"
    const bool only_unit =
        std::all_of(tokens.begin() + static_cast<std::ptrdiff_t>(i), tokens.end(), [](const MathToken& t) {
          return t.type == Type::kWord || t.type == Type::kLetter || IsSymbol(t, '/') || IsSymbol(t, '^') ||
                 IsSymbol(t, '.') || IsSymbol(t, '{') || IsSymbol(t, '}') ||
                 (t.type == Type::kNumber && t.text.size() == 1);
        });
    if (only_unit) return tokens.first(i);
  }
  while (tokens.size() > 1 && IsSymbol(tokens.back(), '.')) tokens = tokens.first(tokens.size() - 1);
  return tokens;
}

std::optional<MathAnswer> ParseMatrix(Tokens tokens, int nesting) {
  if (tokens.size() < 2 || !Is(tokens.front(), Type::kCommand, "matrix") || !IsBracketed(tokens)) return std::nullopt;
  MathAnswer matrix;
  matrix.kind = Kind::kMatrix;
  for (Tokens row :
       Split(tokens.subspan(1, tokens.size() - 2), [](const MathToken& t) { return Is(t, Type::kCommand, "row"); })) {
    if (row.empty()) continue;  // a line break behind the last row
    const std::vector<Tokens> cells = Split(row, [](const MathToken& t) { return IsSymbol(t, '&'); });
    if (matrix.columns != 0 && cells.size() != matrix.columns) return std::nullopt;
    matrix.columns = cells.size();
    for (Tokens cell : cells) matrix.items.push_back(ParseList(cell, nesting + 1));
  }
  return matrix;
}

std::optional<MathAnswer> ParseBased(Tokens tokens) {
  if (tokens.size() < 3 || tokens[0].type != Type::kNumber || !IsSymbol(tokens[1], '_')) return std::nullopt;
  const bool braced = tokens.size() == 5 && IsSymbol(tokens[2], '{') && IsSymbol(tokens[4], '}');
  const MathToken& base = tokens[braced ? 3 : 2];
  if ((!braced && tokens.size() != 3) || base.type != Type::kNumber) return std::nullopt;
  MathAnswer based;
  based.kind = Kind::kBased;
  based.text = tokens[0].text;
  based.base = base.text;
  return based;
}

MathAnswer Words(Tokens tokens) {
  MathAnswer words;
  words.kind = Kind::kWords;
  for (const MathToken& token : tokens) {
    if (token.type == Type::kSymbol || token.text == "{" || token.text == "}" || token.text == "row") continue;
    for (char c : token.text) words.text.push_back(static_cast<char>(c >= 'A' && c <= 'Z' ? c | 32 : c));
  }
  if (words.text.empty()) words.kind = Kind::kNothing;
  return words;
}

// a < b, a \le b, a > b, a \ge b and chains of two; an interval where they bound one variable.
std::optional<MathAnswer> ParseInequality(Tokens tokens, int nesting) {
  struct Relation {
    size_t at;
    bool less, strict;
  };
  std::vector<Relation> relations;
  int depth = 0;
  for (size_t i = 0; i < tokens.size(); ++i) {
    depth += BracketStep(tokens[i]);
    if (depth != 0) continue;
    const bool strict = IsSymbol(tokens[i], '<') || IsSymbol(tokens[i], '>');
    const bool loose = Is(tokens[i], Type::kCommand, "le") || Is(tokens[i], Type::kCommand, "ge");
    if (strict || loose) relations.push_back({i, tokens[i].text == "<" || tokens[i].text == "le", strict});
  }
  if (relations.empty() || relations.size() > 2) return std::nullopt;
  std::vector<Tokens> sides;
  size_t begin = 0;
  for (const Relation& relation : relations) {
    sides.push_back(tokens.subspan(begin, relation.at - begin));
    begin = relation.at + 1;
  }
  sides.push_back(tokens.subspan(begin));
  auto is_variable = [](Tokens side) { return side.size() == 1 && side[0].type == Type::kLetter; };
  MathAnswer infinity;
  infinity.kind = Kind::kExpression;
  auto unbounded = [&](bool negative) {
    const std::vector<MathToken> spelled = {{Type::kSymbol, "-", false}, {Type::kCommand, "infty", false}};
    infinity.expr = ParseMathExpr(negative ? Tokens(spelled) : Tokens(spelled).subspan(1));
    return infinity;
  };
  MathAnswer interval;
  interval.kind = Kind::kBracketed;
  if (relations.size() == 2) {
    if (!is_variable(sides[1]) || relations[0].less != relations[1].less) return std::nullopt;
    const bool less = relations[0].less;
    interval.items = {ParseList(sides[less ? 0 : 2], nesting + 1), ParseList(sides[less ? 2 : 0], nesting + 1)};
    interval.open = relations[less ? 0 : 1].strict ? '(' : '[';
    interval.close = relations[less ? 1 : 0].strict ? ')' : ']';
    return interval;
  }
  const Relation& relation = relations[0];
  if (is_variable(sides[0]) || is_variable(sides[1])) {
    const size_t bound = is_variable(sides[0]) ? 1 : 0;
    const bool above = relation.less == (bound == 1);  // the bound is the upper one
    const MathAnswer value = ParseList(sides[bound], nesting + 1);
    interval.items =
        above ? std::vector<MathAnswer>{unbounded(true), value} : std::vector<MathAnswer>{value, unbounded(false)};
    interval.open = above || relation.strict ? '(' : '[';
    interval.close = above && !relation.strict ? ']' : ')';
    return interval;
  }
  MathAnswer out;
  out.kind = Kind::kInequality;
  out.text = relation.strict ? "<" : "<=";
  out.items = {ParseList(sides[relation.less ? 0 : 1], nesting + 1),
               ParseList(sides[relation.less ? 1 : 0], nesting + 1)};
  return out;
}

MathAnswer ParseElement(Tokens tokens, int nesting) {
  MathAnswer nothing;
  if (tokens.empty() || nesting > kMaxNesting) return nothing;
  if (std::optional<MathAnswer> matrix = ParseMatrix(tokens, nesting)) return *std::move(matrix);
  if (IsBracketed(tokens)) {
    const Tokens inside = tokens.subspan(1, tokens.size() - 2);
    const std::vector<Tokens> parts = Split(inside, IsListSeparator);
    if (Is(tokens.front(), Type::kCommand, "{")) {
      MathAnswer set = ParseList(inside, nesting + 1);
      if (set.kind == Kind::kList) {
        set.kind = Kind::kSet;
        return set;
      }
      nothing.kind = Kind::kSet;
      if (!inside.empty()) nothing.items = {set};
      return nothing;
    }
    if (parts.size() > 1) {
      MathAnswer bracketed;
      bracketed.kind = Kind::kBracketed;
      bracketed.open = tokens.front().text[0];
      bracketed.close = tokens.back().text[0];
      for (Tokens part : parts) bracketed.items.push_back(ParseList(part, nesting + 1));
      return bracketed;
    }
  }
  // x \in S says S.
  for (size_t i = 1; i + 1 < tokens.size(); ++i) {
    if (Is(tokens[i], Type::kCommand, "in")) return ParseList(tokens.subspan(i + 1), nesting + 1);
  }
  if (std::optional<MathAnswer> based = ParseBased(tokens)) return *std::move(based);
  const std::vector<Tokens> sides = Split(tokens, [](const MathToken& t) { return IsSymbol(t, '='); });
  if (sides.size() == 2 && !sides[1].empty()) {
    MathAnswer left = ParseElement(WithoutUnits(sides[0]), nesting + 1), right = ParseList(sides[1], nesting + 1);
    if (left.kind != Kind::kExpression || right.kind != Kind::kExpression) return right;  // "Area = 5"
    MathAnswer equation;
    equation.kind = Kind::kEquation;
    equation.items = {std::move(left), std::move(right)};
    return equation;
  }
  if (sides.size() > 2 && !sides.back().empty()) return ParseList(sides.back(), nesting + 1);  // a = b = c
  if (std::optional<MathAnswer> inequality = ParseInequality(tokens, nesting)) return *std::move(inequality);
  for (Tokens quantity : {tokens, WithoutUnits(tokens)}) {
    if (MathExprPtr expr = ParseMathExpr(quantity)) {
      MathAnswer answer;
      answer.kind = Kind::kExpression;
      answer.expr = std::move(expr);
      return answer;
    }
  }
  const Tokens quantity = WithoutUnits(tokens);
  if (quantity.size() < tokens.size()) return ParseElement(quantity, nesting + 1);
  return Words(tokens);
}

MathAnswer ParseList(Tokens tokens, int nesting) {
  if (nesting > kMaxNesting) return {};
  while (!tokens.empty() &&
         (IsSymbol(tokens.back(), '.') || IsSymbol(tokens.back(), ',') || IsSymbol(tokens.back(), ';'))) {
    tokens = tokens.first(tokens.size() - 1);
  }
  const std::vector<Tokens> unions = Split(tokens, [](const MathToken& t) { return Is(t, Type::kCommand, "cup"); });
  if (unions.size() > 1) {
    MathAnswer out;
    out.kind = Kind::kUnion;
    for (Tokens part : unions) out.items.push_back(ParseElement(part, nesting + 1));
    return out;
  }
  MathAnswer list;
  list.kind = Kind::kList;
  for (Tokens part : Split(tokens, IsListSeparator)) {
    if (part.empty()) continue;  // "3, 5, and 7"
    MathAnswer element = ParseElement(part, nesting + 1);
    list.items.push_back(std::move(element));
  }
  if (list.items.empty()) return {};
  const bool all_words =
      std::all_of(list.items.begin(), list.items.end(), [](const MathAnswer& a) { return a.kind == Kind::kWords; });
  if (list.items.size() > 1 && all_words) return list;
  return list.items.size() == 1 ? std::move(list.items[0]) : list;
}

}  // namespace

MathAnswer ParseMathAnswer(std::string_view answer) {
  const std::vector<MathToken> tokens = MathTokens(answer);
  return ParseList(tokens, 0);
}

}  // namespace manta::reward
