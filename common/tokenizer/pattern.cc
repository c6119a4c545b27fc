#include "common/tokenizer/pattern.h"

#include "common/base/status.h"

namespace manta::tokenizer {

absl::StatusOr<Pattern> Pattern::Load(const JsonNode& node) {
  MANTA_RETURN_IF_ERROR(node.CheckObject());
  if (const auto literal = node.Find("String")) {
    MANTA_ASSIGN_OR_RETURN(std::string text, literal->AsString());
    if (text.empty()) return literal->Error("an empty pattern is not supported");
    return Pattern(std::move(text));
  }
  MANTA_ASSIGN_OR_RETURN(const JsonNode regex, node.Need("Regex"));
  MANTA_ASSIGN_OR_RETURN(const std::string text, regex.AsString());
  Pattern pattern{std::string()};
  pattern.scanner_ = FindScanner(text);
  if (pattern.scanner_ != nullptr) return pattern;
  absl::StatusOr<Regex> compiled = Regex::Compile(text);
  if (!compiled.ok()) return regex.Error(std::string(compiled.status().message()));
  pattern.regex_ = *std::move(compiled);
  return pattern;
}

Pattern Pattern::Gpt2() {
  Pattern pattern{std::string()};
  pattern.scanner_ = FindScanner(kGpt2Pattern);
  return pattern;
}

absl::Status Pattern::FindAll(std::string_view text, std::vector<Span>* matches) const {
  if (scanner_ != nullptr) {
    const CharTable& chars = CharTable::Get();
    const char* const begin = text.data();
    const char* const end = begin + text.size();
    for (const char* p = begin; p < end;) {
      const char* next = scanner_(chars, p, end);
      matches->push_back({static_cast<size_t>(p - begin), static_cast<size_t>(next - begin)});
      p = next;
    }
    return absl::OkStatus();
  }
  if (regex_.has_value()) return regex_->FindAll(text, matches);
  for (size_t at = text.find(literal_); at != text.npos; at = text.find(literal_, at + literal_.size())) {
    matches->push_back({at, at + literal_.size()});
  }
  return absl::OkStatus();
}

std::string ReplaceAll(std::string_view text, std::string_view from, std::string_view to) {
  std::string out;
  size_t copied = 0;
  for (size_t at = text.find(from); at != text.npos; at = text.find(from, copied)) {
    out.append(text.substr(copied, at - copied));
    out.append(to);
    copied = at + from.size();
  }
  out.append(text.substr(copied));
  return out;
}

}  // namespace manta::tokenizer
