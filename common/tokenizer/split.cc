#include "common/tokenizer/split.h"

#include "common/base/status.h"
#include "common/base/strings.h"

namespace manta::tokenizer {
namespace {

struct Part {
  Span span;
  bool delimiter;
};

// The whole text as a sequence of matches and what lies between them.
std::vector<Part> Parts(size_t size, const std::vector<Span>& matches, bool invert) {
  std::vector<Part> parts;
  parts.reserve(matches.size() + 1);
  size_t at = 0;
  for (const Span& match : matches) {
    if (match.begin > at) parts.push_back({{at, match.begin}, invert});
    parts.push_back({match, !invert});
    at = match.end;
  }
  if (at < size) parts.push_back({{at, size}, invert});
  return parts;
}

}  // namespace

absl::StatusOr<SplitBehavior> LoadSplitBehavior(const JsonNode& node) {
  MANTA_ASSIGN_OR_RETURN(const std::string name, node.AsString());
  if (name == "Removed") return SplitBehavior::kRemoved;
  if (name == "Isolated") return SplitBehavior::kIsolated;
  if (name == "MergedWithPrevious") return SplitBehavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return SplitBehavior::kMergedWithNext;
  if (name == "Contiguous") return SplitBehavior::kContiguous;
  return node.Error(StrCat("unknown behavior \"", name,
                           "\"; known: Removed, Isolated, MergedWithPrevious, MergedWithNext, Contiguous"));
}

void SplitAt(const Piece& piece, const std::vector<Span>& matches, SplitBehavior behavior, bool invert,
             std::vector<Piece>* out) {
  const std::vector<Part> parts = Parts(piece.text.size(), matches, invert);
  std::vector<Span> spans;
  bool after_delimiter = false;
  switch (behavior) {
    case SplitBehavior::kRemoved:
      for (const Part& part : parts) {
        if (!part.delimiter) spans.push_back(part.span);
      }
      break;
    case SplitBehavior::kIsolated:
      for (const Part& part : parts) spans.push_back(part.span);
      break;
    case SplitBehavior::kContiguous:
      for (const Part& part : parts) {
        if (!spans.empty() && part.delimiter == after_delimiter) {
          spans.back().end = part.span.end;
        } else {
          spans.push_back(part.span);
        }
        after_delimiter = part.delimiter;
      }
      break;
    case SplitBehavior::kMergedWithPrevious:
      for (const Part& part : parts) {
        if (part.delimiter && !after_delimiter && !spans.empty()) {
          spans.back().end = part.span.end;
        } else {
          spans.push_back(part.span);
        }
        after_delimiter = part.delimiter;
      }
      break;
    case SplitBehavior::kMergedWithNext:
      for (auto part = parts.rbegin(); part != parts.rend(); ++part) {
        if (part->delimiter && !after_delimiter && !spans.empty()) {
          spans.back().begin = part->span.begin;
        } else {
          spans.push_back(part->span);
        }
        after_delimiter = part->delimiter;
      }
      spans = {spans.rbegin(), spans.rend()};
      break;
  }
  for (const Span& span : spans) {
    if (span.begin == span.end) continue;
    out->push_back({piece.text.substr(span.begin, span.end - span.begin), piece.at_text_start && span.begin == 0});
  }
}

}  // namespace manta::tokenizer
