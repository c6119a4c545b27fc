#include "worker_reward/verifiers/math_tokens.h"

#include <algorithm>
#include <array>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"

namespace manta::reward {
namespace {

using Type = MathToken::Type;

bool IsDigit(char c) {
  return c >= '0' && c <= '9';
}
bool IsLetter(char c) {
  return (c | 32) >= 'a' && (c | 32) <= 'z';
}

void ReplaceAll(std::string* text, std::string_view from, std::string_view to) {
  size_t pos = 0;
  while ((pos = text->find(from, pos)) != std::string::npos) {
    text->replace(pos, from.size(), to);
    pos += to.size();
  }
}

// Signs that are spelled several ways.
std::string Cleaned(std::string_view answer) {
  std::string text(answer);
  ReplaceAll(&text, "\\\\", "\\row ");                               // the end of a matrix's row
  for (size_t at; (at = text.find(",\\!")) != std::string::npos;) {  // 10,\!080
    size_t end = at + 3;
    while (end < text.size() && text[end] == ' ') ++end;
    text.erase(at, end - at);
  }
  static constexpr std::pair<std::string_view, std::string_view> kSpellings[] = {
      {"{,}", ""},         {"\\!", ""},           {"^{\\circ}", ""},
      {"^\\circ", ""},     {"\\circ", ""},        {"\\degree", ""},
      {"\u00B0", ""},      {"\\$", ""},           {"$", ""},
      {"\u20AC", ""},      {"\u00A3", ""},        {"\u00A5", ""},
      {"\\%", "%"},        {"\\,", " "},          {"\\;", " "},
      {"\\:", " "},        {"\\ ", " "},          {"~", " "},
      {"\\(", " "},        {"\\)", " "},          {"\u2212", "-"},
      {"\u2013", "-"},     {"\u00D7", "*"},       {"\u22C5", "*"},
      {"\u00B7", "*"},     {"\u00F7", "/"},       {"\u2215", "/"},
      {"\u03C0", "\\pi "}, {"\u221A", "\\sqrt "}, {"\u221E", "\\infty "},
      {"\u2264", "\\le "}, {"\u2265", "\\ge "},   {"<=", "\\le "},
      {">=", "\\ge "},     {"\u222A", "\\cup "},  {"\u2208", "\\in "},
      {"\u00B1", "\\pm "}, {"+-", "\\pm "},       {"+/-", "\\pm "},
      {"\u00B2", "^2"},    {"\u00B3", "^3"},      {"\u00BD", "(1/2)"},
      {"\u00BC", "(1/4)"}, {"\u00BE", "(3/4)"},   {"**", "^"},
      {"\u00A0", " "},     {"\u2009", " "},       {"\u202F", " "},
      {"&=", "="}};
  for (const auto& [from, to] : kSpellings) ReplaceAll(&text, from, to);
  return text;
}

// A command's own name, or another that means the same; empty where it is only looks.
const absl::flat_hash_map<std::string, std::string>& CommandNames() {
  static const auto& names = *new absl::flat_hash_map<std::string, std::string>{{"dfrac", "frac"},
                                                                                {"tfrac", "frac"},
                                                                                {"cfrac", "frac"},
                                                                                {"leq", "le"},
                                                                                {"geq", "ge"},
                                                                                {"leqslant", "le"},
                                                                                {"geqslant", "ge"},
                                                                                {"lt", "<"},
                                                                                {"gt", ">"},
                                                                                {"times", "*"},
                                                                                {"cdot", "*"},
                                                                                {"div", "/"},
                                                                                {"left", ""},
                                                                                {"right", ""},
                                                                                {"big", ""},
                                                                                {"Big", ""},
                                                                                {"bigl", ""},
                                                                                {"bigr", ""},
                                                                                {"Bigl", ""},
                                                                                {"Bigr", ""},
                                                                                {"bigg", ""},
                                                                                {"Bigg", ""},
                                                                                {"displaystyle", ""},
                                                                                {"textstyle", ""},
                                                                                {"limits", ""},
                                                                                {"quad", ""},
                                                                                {"qquad", ""},
                                                                                {"hspace", ""},
                                                                                {"boldsymbol", ""},
                                                                                {"mathbf", ""},
                                                                                {"mathit", ""},
                                                                                {"bf", ""},
                                                                                {"rm", ""},
                                                                                {"it", ""},
                                                                                {"lbrace", "{"},
                                                                                {"rbrace", "}"},
                                                                                {"lbrack", "["},
                                                                                {"rbrack", "]"},
                                                                                {"lvert", "|"},
                                                                                {"rvert", "|"},
                                                                                {"vert", "|"},
                                                                                {"ast", "*"},
                                                                                {"tbinom", "binom"},
                                                                                {"dbinom", "binom"},
                                                                                {"bmatrix", "matrix"},
                                                                                {"mp", "pm"},
                                                                                {"colon", ":"},
                                                                                {"varphi", "phi"},
                                                                                {"varepsilon", "epsilon"}};
  return names;
}

bool TakesText(std::string_view command) {
  static constexpr std::string_view kNames[] = {"text",   "mbox",   "textbf",       "textit",
                                                "textrm", "mathrm", "operatorname", "hbox"};
  return std::find(std::begin(kNames), std::end(kNames), command) != std::end(kNames);
}

const absl::flat_hash_set<std::string>& Functions() {
  static const auto& names =
      *new absl::flat_hash_set<std::string>{"sin", "cos",  "tan", "cot",   "sec",    "csc",    "log",   "ln",
                                            "exp", "sqrt", "pi",  "infty", "arcsin", "arccos", "arctan"};
  return names;
}

bool IsUnit(const std::string& word) {
  static const auto& units = *new absl::flat_hash_set<std::string>{
      "cm",  "mm",  "km",  "kg",  "mg",  "ml", "mL", "ft", "in", "lb", "lbs", "oz",  "mi",  "yd", "hr",
      "hrs", "min", "sec", "mph", "kph", "am", "pm", "AM", "PM", "cc", "sq",  "deg", "rad", "USD"};
  return units.contains(word);
}

class Tokenizer {
 public:
  explicit Tokenizer(std::string text) : text_(std::move(text)) {}

  std::vector<MathToken> Run() {
    while (at_ < text_.size()) Next();
    return std::move(tokens_);
  }

 private:
  void Next() {
    const char c = text_[at_];
    if (c == ' ' || c == '\t' || c == '\n' || c == '\r') {
      space_ = true;
      ++at_;
    } else if (IsDigit(c) || (c == '.' && at_ + 1 < text_.size() && IsDigit(text_[at_ + 1]))) {
      Number();
    } else if (c == '\\') {
      Command();
    } else if (IsLetter(c)) {
      Letters();
    } else {
      if (c == '(' || c == '[') ++depth_;
      if ((c == ')' || c == ']') && depth_ > 0) --depth_;
      Add(Type::kSymbol, std::string(1, c));
      ++at_;
    }
  }

  void Number() {
    size_t end = at_;
    while (end < text_.size() && IsDigit(text_[end])) ++end;
    std::string digits = text_.substr(at_, end - at_);
    // Commas between groups of three are separators, outside brackets, where commas part elements.
    auto group = [&](size_t comma) {
      if (comma + 3 >= text_.size() || text_[comma] != ',') return false;
      for (size_t i = 1; i <= 3; ++i) {
        if (!IsDigit(text_[comma + i])) return false;
      }
      return comma + 4 >= text_.size() || !IsDigit(text_[comma + 4]);
    };
    if (depth_ == 0 && digits.size() <= 3 && !digits.empty() && digits[0] != '0') {
      while (group(end)) {
        digits += text_.substr(end + 1, 3);
        end += 4;
      }
    }
    if (end + 1 < text_.size() && text_[end] == '.' && IsDigit(text_[end + 1])) {
      const size_t point = end++;
      while (end < text_.size() && IsDigit(text_[end])) ++end;
      digits += text_.substr(point, end - point);
    } else if (end < text_.size() && text_[end] == '.') {
      ++end;  // "5." ends a sentence, or is 5
    }
    Add(Type::kNumber, std::move(digits));
    at_ = end;
  }

  void Command() {
    size_t end = at_ + 1;
    while (end < text_.size() && IsLetter(text_[end])) ++end;
    if (end == at_ + 1) {  // \{ \} \\ and the like
      const char c = end < text_.size() ? text_[end] : '\\';
      at_ = std::min(end + 1, text_.size());
      Add(Type::kCommand, std::string(1, c));
      return;
    }
    std::string name = text_.substr(at_ + 1, end - at_ - 1);
    at_ = end;
    if (TakesText(name)) return Text();
    if (name == "begin" || name == "end") return Environment(name);
    if (const auto it = CommandNames().find(name); it != CommandNames().end()) name = it->second;
    if (name.empty()) {
      space_ = true;
    } else if (name.size() == 1 && !IsLetter(name[0])) {
      const bool brace = name == "{" || name == "}";
      Add(brace ? Type::kCommand : Type::kSymbol, name);
    } else {
      Add(Type::kCommand, name);
    }
  }

  // \text{...}: a word, or the expression in it where there is a digit.
  void Text() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
    if (at_ >= text_.size() || text_[at_] != '{') return;
    int depth = 0;
    size_t end = at_;
    for (; end < text_.size(); ++end) {
      if (text_[end] == '{') ++depth;
      if (text_[end] == '}' && --depth == 0) break;
    }
    const std::string inside = text_.substr(at_ + 1, end > at_ ? end - at_ - 1 : 0);
    at_ = std::min(end + 1, text_.size());
    if (std::any_of(inside.begin(), inside.end(), IsDigit)) {
      for (MathToken& token : Tokenizer(inside).Run()) tokens_.push_back(std::move(token));
      return;
    }
    size_t begin = std::string::npos;
    for (size_t i = 0; i <= inside.size(); ++i) {
      const bool letter = i < inside.size() && IsLetter(inside[i]);
      if (letter && begin == std::string::npos) begin = i;
      if (!letter && begin != std::string::npos) {
        Add(Type::kWord, inside.substr(begin, i - begin));
        begin = std::string::npos;
      }
    }
  }

  // \begin{pmatrix} -> the command matrix; \end{...} -> endmatrix. An array's column specification is dropped.
  void Environment(const std::string& kind) {
    const size_t close = text_.find('}', at_);
    if (at_ >= text_.size() || text_[at_] != '{' || close == std::string::npos) return;
    const std::string name = text_.substr(at_ + 1, close - at_ - 1);
    at_ = close + 1;
    if (name == "array" && kind == "begin" && at_ < text_.size() && text_[at_] == '{') {
      const size_t columns = text_.find('}', at_);
      at_ = columns == std::string::npos ? text_.size() : columns + 1;
    }
    depth_ += kind == "begin" ? 1 : depth_ > 0 ? -1 : 0;
    Add(Type::kCommand, kind == "begin" ? "matrix" : "endmatrix");
  }

  void Letters() {
    size_t end = at_;
    while (end < text_.size() && IsLetter(text_[end])) ++end;
    const std::string run = text_.substr(at_, end - at_);
    const bool after_number = !tokens_.empty() && tokens_.back().type == Type::kNumber;
    const bool word = run.size() >= 4 ||
                      (run.size() >= 2 && (IsUnit(run) || (after_number && space_) || run == "and" || run == "or"));
    const size_t begin = at_;
    at_ = end;
    if (Functions().contains(run)) return Add(Type::kCommand, run);
    if (run == "inf" || run == "infinity") return Add(Type::kCommand, "infty");
    if (word) return Add(Type::kWord, run);
    for (size_t i = begin; i < end; ++i) Add(Type::kLetter, text_.substr(i, 1));
  }

  void Add(Type type, std::string text) {
    tokens_.push_back({type, std::move(text), space_});
    space_ = false;
  }

  std::string text_;
  size_t at_ = 0;
  int depth_ = 0;
  bool space_ = false;
  std::vector<MathToken> tokens_;
};

}  // namespace

std::vector<MathToken> MathTokens(std::string_view answer) {
  if (answer.size() > kMaxAnswerBytes) return {};
  return Tokenizer(Cleaned(answer)).Run();
}

std::string PlainText(std::string_view answer) {
  std::string out;
  for (size_t i = 0; i < answer.size(); ++i) {
    if (answer[i] == '\\') {  // a command's name is no part of the words
      while (i + 1 < answer.size() && IsLetter(answer[i + 1])) ++i;
      continue;
    }
    const unsigned char c = static_cast<unsigned char>(answer[i]);
    if (IsLetter(answer[i])) {
      out.push_back(static_cast<char>(answer[i] | 32));
    } else if (IsDigit(answer[i]) || c >= 0x80) {
      out.push_back(answer[i]);
    }
  }
  return out;
}

}  // namespace manta::reward
