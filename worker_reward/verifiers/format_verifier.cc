// format: does the response have the shape that was asked for?
//
// Options: either `pattern`, a regular expression (PCRE2; with `match: full`, the default, it must cover the whole
// response, with `search` a part), or `tags` (think, answer by default): each must stand exactly once, closed, in that
// order, with nothing but white space between and around them, and with something inside. `correct` and `wrong` are
// the rewards. Component: format.
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <memory>

#include "common/base/strings.h"
#include "worker_reward/verifiers/options.h"
#include "worker_reward/verifiers/registry.h"

namespace manta::reward {
namespace {

constexpr uint32_t kMatchLimit = 2'000'000;  // PCRE2's own count of steps: about a tenth of a second
constexpr size_t kMaxPatternBytes = 10'000;

struct FreeCode {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
};

class FormatVerifier : public Verifier {
 public:
  absl::Status Configure(const nlohmann::json& options) {
    OptionReader reader("format", options);
    std::string pattern, match = "full";
    reader.Text("pattern", &pattern);
    reader.Choice("match", {"full", "search"}, &match);
    reader.Texts("tags", &tags_);
    reader.Number("correct", &correct_);
    reader.Number("wrong", &wrong_);
    if (absl::Status status = reader.Finish(); !status.ok()) return status;
    if (pattern.empty()) return CheckTags();
    if (options.contains("tags"))
      return absl::InvalidArgumentError("verifier format: give a pattern or tags, not both");
    if (pattern.size() > kMaxPatternBytes) {
      return absl::InvalidArgumentError(StrCat("verifier format: pattern has more than ", kMaxPatternBytes, " bytes"));
    }
    int error = 0;
    PCRE2_SIZE at = 0;
    const uint32_t flags = PCRE2_UTF | PCRE2_DOTALL | (match == "full" ? PCRE2_ANCHORED | PCRE2_ENDANCHORED : 0);
    code_.reset(
        pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(), flags, &error, &at, nullptr));
    if (code_ == nullptr) {
      PCRE2_UCHAR message[200];
      pcre2_get_error_message(error, message, sizeof message);
      return absl::InvalidArgumentError(
          StrCat("verifier format: pattern, character ", at, ": ", reinterpret_cast<const char*>(message)));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<Score> Verify(const VerifierSample& sample, const Deadline& deadline) const override {
    bool right = false;
    if (code_ != nullptr) {
      absl::StatusOr<bool> matches = Matches(sample.response);
      if (!matches.ok()) return matches.status();
      right = *matches;
    } else {
      right = HasTags(sample.response);
    }
    if (deadline.passed()) return absl::DeadlineExceededError("verifier format: the sample's time is over");
    Score score;
    score.reward = right ? correct_ : wrong_;
    score.components = {{"format", right ? 1 : 0}};
    return score;
  }

 private:
  absl::Status CheckTags() const {
    if (tags_.empty()) return absl::InvalidArgumentError("verifier format: tags must name at least one tag");
    for (const std::string& tag : tags_) {
      if (tag.empty() || tag.find_first_of("<>/ ") != std::string::npos) {
        return absl::InvalidArgumentError(
            StrCat("verifier format: '", tag, "' is no tag's name: write think, not <think>"));
      }
    }
    return absl::OkStatus();
  }

  absl::StatusOr<bool> Matches(std::string_view response) const {
    std::unique_ptr<pcre2_match_data, void (*)(pcre2_match_data*)> data(pcre2_match_data_create(1, nullptr),
                                                                        pcre2_match_data_free);
    std::unique_ptr<pcre2_match_context, void (*)(pcre2_match_context*)> context(pcre2_match_context_create(nullptr),
                                                                                 pcre2_match_context_free);
    pcre2_set_match_limit(context.get(), kMatchLimit);
    const int result = pcre2_match(code_.get(), reinterpret_cast<PCRE2_SPTR>(response.data()), response.size(), 0, 0,
                                   data.get(), context.get());
    if (result >= 0) return true;
    if (result == PCRE2_ERROR_NOMATCH) return false;
    if (result <= PCRE2_ERROR_UTF8_ERR1 && result >= PCRE2_ERROR_UTF8_ERR21) return false;  // broken text has no shape
    if (result == PCRE2_ERROR_MATCHLIMIT || result == PCRE2_ERROR_DEPTHLIMIT || result == PCRE2_ERROR_HEAPLIMIT) {
      return absl::ResourceExhaustedError("verifier format: the pattern backtracks too much on this response");
    }
    return absl::InternalError(StrCat("verifier format: PCRE2 error ", result));
  }

  bool HasTags(std::string_view text) const {
    auto skip_space = [&text] {
      const size_t first = text.find_first_not_of(" \t\r\n");
      text = first == std::string_view::npos ? std::string_view() : text.substr(first);
    };
    auto holds = [this](std::string_view inside) {
      for (const std::string& tag : tags_) {
        if (inside.find(StrCat("<", tag, ">")) != std::string_view::npos ||
            inside.find(StrCat("</", tag, ">")) != std::string_view::npos) {
          return true;
        }
      }
      return false;
    };
    for (const std::string& tag : tags_) {
      skip_space();
      const std::string open = StrCat("<", tag, ">"), close = StrCat("</", tag, ">");
      if (!text.starts_with(open)) return false;
      const size_t end = text.find(close);
      if (end == std::string_view::npos) return false;
      const std::string_view inside = text.substr(open.size(), end - open.size());
      if (holds(inside) || inside.find_first_not_of(" \t\r\n") == std::string_view::npos) return false;
      text = text.substr(end + close.size());
    }
    skip_space();
    return text.empty();
  }

  std::vector<std::string> tags_ = {"think", "answer"};
  std::unique_ptr<pcre2_code, FreeCode> code_;
  double correct_ = 1, wrong_ = 0;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Verifier>> MakeFormatVerifier(const nlohmann::json& options) {
  auto verifier = std::make_unique<FormatVerifier>();
  if (absl::Status status = verifier->Configure(options); !status.ok()) return status;
  return verifier;
}

}  // namespace manta::reward
