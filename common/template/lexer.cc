#include "common/template/lexer.h"

#include <cstdlib>

#include "absl/strings/ascii.h"
#include "absl/strings/str_replace.h"
#include "common/base/strings.h"
#include "common/template/python_format.h"
#include "common/template/text.h"

namespace manta::chat_template {
namespace {

bool IsDigitChar(char c) {
  return c >= '0' && c <= '9';
}

size_t SkipSpace(std::string_view text, size_t pos) {
  return text.size() - StripLeft(text.substr(pos)).size();
}

class Lexer {
 public:
  explicit Lexer(std::string source) : source_(std::move(source)) {}

  std::vector<Token> Run() {
    while (pos_ < source_.size()) TextAndTag();
    Add(Token::Type::kEnd, "");
    return std::move(tokens_);
  }

 private:
  void TextAndTag() {
    const size_t open = FindOpen(pos_);
    if (open == std::string::npos) {
      AddText(std::string_view(source_).substr(pos_));
      pos_ = source_.size();
      return;
    }
    const char kind = source_[open + 1];
    size_t after = open + 2;
    const char sign =
        after < source_.size() && (source_[after] == '-' || source_[after] == '+') ? source_[after] : '\0';
    if (sign != '\0') ++after;
    // `{{+` is an opening and a plus sign in no template worth reading, but the sign belongs to the tag.
    std::string_view text = std::string_view(source_).substr(pos_, open - pos_);
    size_t raw_body = std::string::npos;
    if (kind == '%') raw_body = MatchRaw(after);
    std::string_view kept = text;
    if (sign == '-') {
      kept = StripRight(text);
    } else if (sign != '+' && kind != '{') {
      const size_t newline = text.rfind('\n');
      const size_t line_begin = newline == std::string_view::npos ? 0 : newline + 1;
      if ((line_begin > 0 || line_starting_) && SkipSpace(text, line_begin) == text.size())
        kept = text.substr(0, line_begin);
    }
    AddText(kept);
    line_ += Newlines(text.substr(kept.size()));
    if (kind == '#') {
      Comment(open, after);
    } else if (raw_body != std::string::npos) {
      Raw(open, raw_body);
    } else {
      Add(kind == '{' ? Token::Type::kVariableBegin : Token::Type::kBlockBegin, kind == '{' ? "{{" : "{%");
      pos_ = after;
      Tag(kind == '{');
    }
  }

  size_t FindOpen(size_t from) const {
    for (size_t at = source_.find('{', from); at != std::string::npos; at = source_.find('{', at + 1)) {
      if (at + 1 < source_.size() && (source_[at + 1] == '{' || source_[at + 1] == '%' || source_[at + 1] == '#'))
        return at;
    }
    return std::string::npos;
  }

  void Advance(size_t to) {
    line_ += Newlines(std::string_view(source_).substr(pos_, to - pos_));
    if (to > pos_) line_starting_ = source_[to - 1] == '\n';
    pos_ = to;
  }

  void Comment(size_t open, size_t after) {
    const size_t close = source_.find("#}", after);
    if (close == std::string::npos) throw SyntaxFailure{line_, "a comment {# is not closed: expected #}"};
    const char sign = close > after ? source_[close - 1] : '\0';
    pos_ = open;
    Advance(AfterClose(close, sign));
  }

  // Behind a closing tag whose two characters stand at `close`, with white space trimmed as `sign` asks.
  size_t AfterClose(size_t close, char sign) const {
    size_t end = close + 2;
    if (sign == '-') return SkipSpace(source_, end);
    if (sign != '+' && end < source_.size() && source_[end] == '\n') ++end;
    return end;
  }

  // Where the body of a raw block begins, if the tag whose inside begins at `after` is one.
  size_t MatchRaw(size_t after) const {
    size_t at = SkipSpace(source_, after);
    if (source_.compare(at, 3, "raw") != 0) return std::string::npos;
    at = SkipSpace(source_, at + 3);
    if (source_.compare(at, 3, "-%}") == 0) return SkipSpace(source_, at + 3);
    if (source_.compare(at, 2, "%}") == 0) return at + 2;
    return std::string::npos;
  }

  void Raw(size_t open, size_t body) {
    const int begin_line = line_;
    pos_ = open;
    Advance(body);
    for (size_t at = source_.find("{%", body); at != std::string::npos; at = source_.find("{%", at + 1)) {
      size_t in = at + 2;
      const char open_sign = in < source_.size() && (source_[in] == '-' || source_[in] == '+') ? source_[in++] : '\0';
      in = SkipSpace(source_, in);
      if (source_.compare(in, 6, "endraw") != 0) continue;
      in = SkipSpace(source_, in + 6);
      char close_sign = '\0';
      if (in < source_.size() && (source_[in] == '-' || source_[in] == '+')) close_sign = source_[in++];
      if (source_.compare(in, 2, "%}") != 0) continue;
      std::string_view text = std::string_view(source_).substr(body, at - body);
      std::string_view kept = text;
      if (open_sign == '-') {
        kept = StripRight(text);
      } else if (open_sign != '+') {
        const size_t newline = text.rfind('\n');
        const size_t begin = newline == std::string_view::npos ? 0 : newline + 1;
        if ((begin > 0 || line_starting_) && SkipSpace(text, begin) == text.size()) kept = text.substr(0, begin);
      }
      AddText(kept);
      line_ += Newlines(text.substr(kept.size()));
      pos_ = at;
      Advance(AfterClose(in, close_sign));
      return;
    }
    throw SyntaxFailure{begin_line, "a raw block is not closed: expected {% endraw %}"};
  }

  // The words of a tag up to and with its end.
  void Tag(bool variable) {
    const int begin_line = line_;
    std::string open_brackets;
    while (true) {
      if (open_brackets.empty() && AtClose(variable)) {
        const bool minus = source_[pos_] == '-';
        const bool plus = source_[pos_] == '+';
        const size_t close = pos_ + (minus || plus ? 1 : 0);
        Add(variable ? Token::Type::kVariableEnd : Token::Type::kBlockEnd, variable ? "}}" : "%}");
        Advance(variable ? (minus ? SkipSpace(source_, close + 2) : close + 2)
                         : AfterClose(close, minus  ? '-'
                                             : plus ? '+'
                                                    : '\0'));
        return;
      }
      const size_t next = SkipSpace(source_, pos_);
      if (next > pos_) {
        Advance(next);
        continue;
      }
      if (pos_ >= source_.size()) {
        throw SyntaxFailure{begin_line, StrCat("a tag is not closed: expected ", variable ? "}}" : "%}")};
      }
      Word(&open_brackets);
    }
  }

  bool AtClose(bool variable) const {
    const std::string_view rest = std::string_view(source_).substr(pos_);
    if (variable) return rest.starts_with("}}") || rest.starts_with("-}}");
    return rest.starts_with("%}") || rest.starts_with("-%}") || rest.starts_with("+%}");
  }

  void Word(std::string* open_brackets) {
    const char c = source_[pos_];
    if (IsDigitChar(c)) return Number();
    if (c == '"' || c == '\'') return String(c);
    size_t end = pos_;
    const char32_t first = NextCodePoint(source_, &end);
    if (IsIdentifierStart(first)) return Name();
    static constexpr std::string_view kTwo[] = {"//", "**", "==", "!=", ">=", "<="};
    for (std::string_view two : kTwo) {
      if (source_.compare(pos_, 2, two) == 0) return Operator(std::string(two));
    }
    if (c == '\0' || std::string_view("+-/*%~[](){}><=.:|,;").find(c) == std::string_view::npos) {
      throw SyntaxFailure{line_, StrCat("unexpected character ", StringRepr(source_.substr(pos_, end - pos_)))};
    }
    if (c == '(' || c == '[' || c == '{') open_brackets->push_back(c == '(' ? ')' : c == '[' ? ']' : '}');
    if (c == ')' || c == ']' || c == '}') {
      if (open_brackets->empty()) throw SyntaxFailure{line_, StrCat("unexpected '", std::string(1, c), "'")};
      if (open_brackets->back() != c) {
        throw SyntaxFailure{line_, StrCat("unexpected '", std::string(1, c), "', expected '",
                                          std::string(1, open_brackets->back()), "'")};
      }
      open_brackets->pop_back();
    }
    Operator(std::string(1, c));
  }

  void Operator(std::string op) {
    Add(Token::Type::kOperator, op);
    Advance(pos_ + op.size());
  }

  void Name() {
    size_t end = pos_;
    while (end < source_.size()) {
      size_t next = end;
      if (!IsWord(NextCodePoint(source_, &next))) break;
      end = next;
    }
    Add(Token::Type::kName, source_.substr(pos_, end - pos_));
    Advance(end);
  }

  // digits with single underscores between them; the position behind them.
  size_t Digits(size_t at) const {
    while (at < source_.size() && (IsDigitChar(source_[at]) ||
                                   (source_[at] == '_' && at + 1 < source_.size() && IsDigitChar(source_[at + 1])))) {
      ++at;
    }
    return at;
  }

  void Number() {
    size_t end = Digits(pos_);
    bool is_float = false;
    const bool after_dot = pos_ > 0 && source_[pos_ - 1] == '.';
    if (!after_dot) {
      if (end + 1 < source_.size() && source_[end] == '.' && IsDigitChar(source_[end + 1])) {
        end = Digits(end + 1);
        is_float = true;
      }
      size_t exponent = end;
      if (exponent < source_.size() && (source_[exponent] | 32) == 'e') {
        ++exponent;
        if (exponent < source_.size() && (source_[exponent] == '+' || source_[exponent] == '-')) ++exponent;
        if (exponent < source_.size() && IsDigitChar(source_[exponent])) {
          end = Digits(exponent);
          is_float = true;
        }
      }
    }
    Token token;
    if (is_float) {
      const std::string text = absl::StrReplaceAll(source_.substr(pos_, end - pos_), {{"_", ""}});
      token.type = Token::Type::kFloat;
      token.value = Value::Float(std::strtod(text.c_str(), nullptr));
    } else {
      token.type = Token::Type::kInteger;
      token.value = Value::Integer(ParseInteger(&end));
    }
    token.text = source_.substr(pos_, end - pos_);
    token.line = line_;
    tokens_.push_back(std::move(token));
    Advance(end);
  }

  Int ParseInteger(size_t* end) const {
    int base = 10;
    size_t at = pos_;
    if (source_[pos_] == '0' && pos_ + 1 < source_.size()) {
      const char kind = static_cast<char>(source_[pos_ + 1] | 32);
      base = kind == 'x' ? 16 : kind == 'o' ? 8 : kind == 'b' ? 2 : 10;
      if (base != 10) at += 2;
    }
    Int value = 0;
    size_t last = at;
    for (; at < source_.size(); ++at) {
      const char c = source_[at];
      if (c == '_') continue;
      const int digit = IsDigitChar(c)                                       ? c - '0'
                        : absl::ascii_isalpha(static_cast<unsigned char>(c)) ? (c | 32) - 'a' + 10
                                                                             : 99;
      if (digit >= base) break;
      if (__builtin_mul_overflow(value, static_cast<Int>(base), &value) ||
          __builtin_add_overflow(value, static_cast<Int>(digit), &value)) {
        throw SyntaxFailure{line_, "a number is too large: at most 128 bits are kept"};
      }
      last = at + 1;
      if (base == 10 && source_[pos_] == '0' && value != 0) {
        throw SyntaxFailure{line_, "a number begins with 0"};
      }
    }
    if (base != 10 && last == pos_ + 2) throw SyntaxFailure{line_, "a number has no digits"};
    *end = last;
    return value;
  }

  void String(char quote) {
    size_t end = pos_ + 1;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size())
      throw SyntaxFailure{line_, StrCat("a string is not closed: expected ", std::string(1, quote))};
    Add(Token::Type::kString, Unescape(std::string_view(source_).substr(pos_ + 1, end - pos_ - 1)));
    Advance(end + 1);
  }

  std::string Unescape(std::string_view raw) const {
    std::string out;
    for (size_t i = 0; i < raw.size(); ++i) {
      if (raw[i] != '\\') {
        out.push_back(raw[i]);
        continue;
      }
      const char c = raw[++i];
      auto hex = [&](size_t digits) {
        const std::string_view text = raw.substr(i + 1, digits);
        char32_t code = 0;
        for (char h : text) {
          if (!absl::ascii_isxdigit(static_cast<unsigned char>(h))) break;
          code = code * 16 + static_cast<char32_t>(IsDigitChar(h) ? h - '0' : (h | 32) - 'a' + 10);
          --digits;
        }
        if (digits != 0 || code > 0x10FFFF) {
          throw SyntaxFailure{line_, StrCat("a string holds the broken escape \\", std::string(1, c), text)};
        }
        i += text.size();
        AppendUtf8(&out, code);
      };
      switch (c) {
        case 'n':
          out.push_back('\n');
          break;
        case 't':
          out.push_back('\t');
          break;
        case 'r':
          out.push_back('\r');
          break;
        case 'a':
          out.push_back('\a');
          break;
        case 'b':
          out.push_back('\b');
          break;
        case 'f':
          out.push_back('\f');
          break;
        case 'v':
          out.push_back('\v');
          break;
        case '\\':
        case '\'':
        case '"':
          out.push_back(c);
          break;
        case '\n':
          break;
        case 'x':
          hex(2);
          break;
        case 'u':
          hex(4);
          break;
        case 'U':
          hex(8);
          break;
        case 'N':
          throw SyntaxFailure{line_, "\\N{...} names of characters are not known here: write \\uXXXX"};
        default:
          if (c >= '0' && c <= '7') {
            char32_t code = 0;
            size_t n = 0;
            for (; n < 3 && i < raw.size() && raw[i] >= '0' && raw[i] <= '7'; ++n, ++i) {
              code = code * 8 + static_cast<char32_t>(raw[i] - '0');
            }
            --i;
            AppendUtf8(&out, code);
          } else {
            out.push_back('\\');
            out.push_back(c);
          }
      }
    }
    return out;
  }

  void AddText(std::string_view text) {
    if (!text.empty()) Add(Token::Type::kText, std::string(text));
    line_ += Newlines(text);
  }
  static int Newlines(std::string_view text) {
    int count = 0;
    for (char c : text) count += c == '\n';
    return count;
  }
  void Add(Token::Type type, std::string text) {
    Token token;
    token.type = type;
    token.text = std::move(text);
    token.line = line_;
    tokens_.push_back(std::move(token));
  }

  std::string source_;
  size_t pos_ = 0;
  int line_ = 1;
  bool line_starting_ = true;
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> Tokenize(std::string_view source) {
  std::string text = absl::StrReplaceAll(std::string(source), {{"\r\n", "\n"}, {"\r", "\n"}});
  if (!text.empty() && text.back() == '\n') text.pop_back();  // one newline at the end is the editor's
  return Lexer(std::move(text)).Run();
}

std::string Describe(const Token& token) {
  switch (token.type) {
    case Token::Type::kEnd:
      return "the end of the template";
    case Token::Type::kText:
      return "text";
    case Token::Type::kString:
      return "a string";
    case Token::Type::kName:
      return StrCat("'", token.text, "'");
    default:
      return StrCat("'", token.text, "'");
  }
}

}  // namespace manta::chat_template
