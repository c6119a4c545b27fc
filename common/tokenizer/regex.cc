#include "common/tokenizer/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <optional>
#include <utility>

#include "absl/strings/str_format.h"
#include "common/base/status.h"
#include "common/base/strings.h"
#include "common/tokenizer/unicode.h"
#include "common/tokenizer/unicode_news.h"

namespace manta::tokenizer {
namespace {

// White_Space and its complement; PCRE2's own \s takes U+180E too.
constexpr std::string_view kSpaceSet =
    R"(\x09-\x0D\x20\x{85}\x{A0}\x{1680}\x{2000}-\x{200A}\x{2028}\x{2029}\x{202F}\x{205F}\x{3000})";
constexpr std::string_view kNotSpaceSet =
    R"(\x{0}-\x08\x0E-\x1F\x21-\x{84}\x{86}-\x{9F}\x{A1}-\x{167F}\x{1681}-\x{1FFF}\x{200B}-\x{2027}\x{202A}-\x{202E})"
    R"(\x{2030}-\x{205E}\x{2060}-\x{2FFF}\x{3001}-\x{10FFFF})";
// Oniguruma takes these for \w, but not where it stands within [...].
constexpr std::string_view kLatin1Numbers = R"(\x{B2}\x{B3}\x{B9}\x{BC}-\x{BE})";
// Not of the categories that \w is made of, and yet of \w.
constexpr std::string_view kOtherWordSet =
    R"(\x{24B6}-\x{24E9}\x{1F130}-\x{1F149}\x{1F150}-\x{1F169}\x{1F170}-\x{1F189})";
constexpr std::string_view kHexSet = "0-9A-Fa-f";

bool IsDigit(char c) {
  return c >= '0' && c <= '9';
}

// What stands within [...] for \p{name}, with the characters that are newer than PCRE2.
std::string CategorySet(std::string_view name) {
  std::string set = StrCat("\\p{", name, "}");
  if (name.empty() || name.size() > 2) return set;
  for (const AssignedRange& range : kNewlyAssigned) {
    if (!std::string_view(range.category, 2).starts_with(name)) continue;
    set += absl::StrFormat("\\x{%X}-\\x{%X}", static_cast<uint32_t>(range.first), static_cast<uint32_t>(range.last));
  }
  return set;
}

const std::string& WordSet() {
  static const std::string* set = new std::string(StrCat(CategorySet("L"), CategorySet("M"), CategorySet("Nd"),
                                                         CategorySet("Nl"), CategorySet("Pc"), kOtherWordSet));
  return *set;
}

// What the escape \c stands for in the other dialect, `in_set` where it stands within [...]; nothing where it is the
// same.
absl::StatusOr<std::optional<std::string>> TranslateEscape(char c, bool in_set) {
  const auto set = [in_set](std::string_view content, bool negated) {
    return in_set ? std::string(content) : StrCat(negated ? "[^" : "[", content, "]");
  };
  switch (c) {
    case 's':
      return set(kSpaceSet, false);
    case 'w':
      return in_set ? WordSet() : StrCat("[", WordSet(), kLatin1Numbers, "]");
    case 'd':
      return set(CategorySet("Nd"), false);
    case 'h':
      return set(kHexSet, false);
    case 'S':
      return in_set ? std::string(kNotSpaceSet) : set(kSpaceSet, true);
    case 'W':
      if (in_set) return UserError("\\W within [...] is not supported");
      return StrCat("[^", WordSet(), kLatin1Numbers, "]");
    case 'D':
      if (in_set) return std::nullopt;
      return set(CategorySet("Nd"), true);
    case 'H':
      if (in_set) return UserError("\\H within [...] is not supported");
      return set(kHexSet, true);
    default:
      return std::nullopt;
  }
}

class Translator {
 public:
  explicit Translator(std::string_view pattern) : in_(pattern) {}

  absl::StatusOr<std::string> Run() {
    while (at_ < in_.size()) {
      if (in_[at_] == '\\') {
        MANTA_RETURN_IF_ERROR(Escape(false));
      } else if (in_[at_] == '[') {
        MANTA_RETURN_IF_ERROR(Set());
      } else if (in_.substr(at_, 2) == "(?") {
        Options();
      } else if (in_[at_] == '{') {
        MANTA_RETURN_IF_ERROR(Repeat());
      } else {
        out_ += in_[at_++];
      }
    }
    return std::move(out_);
  }

 private:
  absl::Status Escape(bool in_set) {
    if (at_ + 1 == in_.size()) return UserError("ends in a backslash");
    const char c = in_[at_ + 1];
    if (c == 'u' && at_ + 6 <= in_.size()) {  // \uHHHH
      out_ += StrCat("\\x{", in_.substr(at_ + 2, 4), "}");
      at_ += 6;
      return absl::OkStatus();
    }
    if ((c == 'p' || c == 'P') && Category(c == 'P', in_set)) return absl::OkStatus();
    MANTA_ASSIGN_OR_RETURN(const std::optional<std::string> translated, TranslateEscape(c, in_set));
    out_ += translated.has_value() ? *translated : std::string(in_.substr(at_, 2));
    at_ += 2;
    return absl::OkStatus();
  }

  // \p{Lu} and \P{Lu}, and \p{^Lu}. False where it is to be left as it is.
  bool Category(bool negated, bool in_set) {
    const size_t end = in_.find('}', at_);
    if (in_.substr(at_ + 2, 1) != "{" || end == in_.npos) return false;
    std::string_view name = in_.substr(at_ + 3, end - at_ - 3);
    if (name.starts_with('^')) {
      negated = !negated;
      name.remove_prefix(1);
    }
    if (negated && in_set) return false;
    const std::string set = CategorySet(name);
    out_ += in_set ? set : StrCat(negated ? "[^" : "[", set, "]");
    at_ = end + 1;
    return true;
  }

  absl::Status Set() {
    out_ += in_[at_++];
    if (at_ < in_.size() && in_[at_] == '^') out_ += in_[at_++];
    if (at_ < in_.size() && in_[at_] == ']') out_ += in_[at_++];  // a bracket that stands first is itself
    while (at_ < in_.size() && in_[at_] != ']') {
      if (in_[at_] == '\\') {
        MANTA_RETURN_IF_ERROR(Escape(true));
      } else if (in_.substr(at_, 2) == "[:") {
        const size_t end = in_.find(":]", at_);
        if (end == in_.npos) return UserError("[: without :]");
        out_ += in_.substr(at_, end + 2 - at_);
        at_ = end + 2;
      } else if (in_[at_] == '[') {
        return UserError("a set within a set is not supported");
      } else if (in_.substr(at_, 2) == "&&") {
        return UserError("&& within [...] is not supported");
      } else {
        out_ += in_[at_++];
      }
    }
    if (at_ == in_.size()) return UserError("[ without ]");
    out_ += in_[at_++];
    return absl::OkStatus();
  }

  // (?imx-imx) and (?imx-imx: ...): m is what PCRE2 calls s.
  void Options() {
    out_ += "(?";
    at_ += 2;
    const size_t end = in_.find_first_not_of("imx-", at_);
    if (end == in_.npos || (in_[end] != ':' && in_[end] != ')')) return;
    for (; at_ < end; ++at_) out_ += in_[at_] == 'm' ? 's' : in_[at_];
  }

  // {,n} is {0,n}.
  absl::Status Repeat() {
    out_ += in_[at_++];
    if (at_ + 1 < in_.size() && in_[at_] == ',' && IsDigit(in_[at_ + 1])) out_ += '0';
    const size_t end = in_.find_first_not_of("0123456789,", at_);
    if (end == in_.npos || in_[end] != '}' || end == at_) return absl::OkStatus();
    out_ += in_.substr(at_, end + 1 - at_);
    at_ = end + 1;
    if (at_ < in_.size() && in_[at_] == '+') return UserError("a + after {...} is not supported");
    return absl::OkStatus();
  }

  std::string_view in_;
  size_t at_ = 0;
  std::string out_;
};

// What matching needs beside the pattern; one a thread.
struct MatchScratch {
  MatchScratch()
      : data(pcre2_match_data_create(1, nullptr)),
        context(pcre2_match_context_create(nullptr)),
        stack(pcre2_jit_stack_create(size_t{32} << 10, size_t{16} << 20, nullptr)) {
    if (context != nullptr && stack != nullptr) pcre2_jit_stack_assign(context, nullptr, stack);
  }
  ~MatchScratch() {
    pcre2_match_data_free(data);
    pcre2_match_context_free(context);
    pcre2_jit_stack_free(stack);
  }
  MatchScratch(const MatchScratch&) = delete;
  MatchScratch& operator=(const MatchScratch&) = delete;

  pcre2_match_data* data;
  pcre2_match_context* context;
  pcre2_jit_stack* stack;
};

std::string ErrorText(int code) {
  PCRE2_UCHAR buffer[256];
  pcre2_get_error_message(code, buffer, sizeof(buffer));
  return reinterpret_cast<const char*>(buffer);
}

}  // namespace

absl::StatusOr<Regex> Regex::Compile(std::string_view pattern) {
  if (pattern.size() > 65536) return UserError("the pattern is longer than 65536 bytes");
  MANTA_ASSIGN_OR_RETURN(const std::string translated, Translator(pattern).Run());
  std::unique_ptr<pcre2_compile_context, decltype(&pcre2_compile_context_free)> context(
      pcre2_compile_context_create(nullptr), pcre2_compile_context_free);
  if (context != nullptr) pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  int error = 0;
  PCRE2_SIZE offset = 0;
  pcre2_code* code =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                    PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &error, &offset, context.get());
  if (code == nullptr) {
    return UserError(StrCat(ErrorText(error), " at byte ", offset, " of ", translated));
  }
  std::shared_ptr<const void> owner(
      code, [](const void* p) { pcre2_code_free(const_cast<pcre2_code*>(static_cast<const pcre2_code*>(p))); });
  pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);  // where it fails, matching is interpreted
  return Regex(std::move(owner));
}

absl::Status Regex::FindAll(std::string_view text, std::vector<Span>* matches) const {
  static thread_local MatchScratch scratch;
  if (scratch.data == nullptr || scratch.context == nullptr)
    return absl::ResourceExhaustedError("no memory for a regex");
  const pcre2_code* code = static_cast<const pcre2_code*>(code_.get());
  const PCRE2_SPTR subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  const PCRE2_SIZE* found = pcre2_get_ovector_pointer(scratch.data);
  std::optional<size_t> last_end;
  for (size_t from = 0; from <= text.size();) {
    const int rc = pcre2_match(code, subject, text.size(), from, PCRE2_NO_UTF_CHECK, scratch.data, scratch.context);
    if (rc == PCRE2_ERROR_NOMATCH) break;
    if (rc < 0) return absl::ResourceExhaustedError(StrCat("regex: ", ErrorText(rc)));
    const Span match{found[0], found[1]};
    if (match.end < match.begin || match.begin < from) return absl::InvalidArgumentError("regex: \\K in a look-around");
    if (match.begin == match.end && last_end == match.end) {
      if (from >= text.size()) break;
      from += static_cast<size_t>(CharLength(static_cast<unsigned char>(text[from])));
      continue;
    }
    from = match.end;
    last_end = match.end;
    matches->push_back(match);
  }
  return absl::OkStatus();
}

}  // namespace manta::tokenizer
