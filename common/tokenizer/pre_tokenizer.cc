#include "common/tokenizer/pre_tokenizer.h"

#include <functional>
#include <utility>

#include "common/base/status.h"
#include "common/base/strings.h"
#include "common/tokenizer/byte_alphabet.h"
#include "common/tokenizer/pattern.h"
#include "common/tokenizer/split.h"
#include "common/tokenizer/unicode.h"

namespace manta::tokenizer {
namespace {

class Split : public PreTokenizerStep {
 public:
  Split(Pattern pattern, SplitBehavior behavior, bool invert)
      : pattern_(std::move(pattern)), behavior_(behavior), invert_(invert) {}

  absl::Status Apply(const Piece& piece, std::deque<std::string>*, std::vector<Piece>* out) const override {
    std::vector<Span> matches;
    MANTA_RETURN_IF_ERROR(pattern_.FindAll(piece.text, &matches));
    SplitAt(piece, matches, behavior_, invert_, out);
    return absl::OkStatus();
  }

 private:
  Pattern pattern_;
  SplitBehavior behavior_;
  bool invert_;
};

// Each character for which `is_delimiter` is a match by itself.
class SplitAtChars : public PreTokenizerStep {
 public:
  SplitAtChars(std::function<bool(char32_t)> is_delimiter, SplitBehavior behavior)
      : is_delimiter_(std::move(is_delimiter)), behavior_(behavior) {}

  absl::Status Apply(const Piece& piece, std::deque<std::string>*, std::vector<Piece>* out) const override {
    std::vector<Span> matches;
    for (size_t at = 0; at < piece.text.size();) {
      const DecodedChar next = DecodeChar(piece.text.data() + at);
      const size_t end = at + static_cast<size_t>(next.length);
      if (is_delimiter_(next.c)) matches.push_back({at, end});
      at = end;
    }
    SplitAt(piece, matches, behavior_, false, out);
    return absl::OkStatus();
  }

 private:
  std::function<bool(char32_t)> is_delimiter_;
  SplitBehavior behavior_;
};

// Runs of word characters, and runs of what is neither word nor space.
class WordsAndRest : public PreTokenizerStep {
 public:
  absl::Status Apply(const Piece& piece, std::deque<std::string>*, std::vector<Piece>* out) const override {
    const CharTable& chars = CharTable::Get();
    const auto kind_at = [&](size_t at, size_t* length) {
      const DecodedChar next = DecodeChar(piece.text.data() + at);
      *length = static_cast<size_t>(next.length);
      return chars[next.c] & (kWord | kSpace);
    };
    for (size_t at = 0; at < piece.text.size();) {
      size_t length = 0;
      const int kind = kind_at(at, &length);
      size_t end = at + length;
      while (end < piece.text.size() && kind_at(end, &length) == kind) end += length;
      if ((kind & kSpace) == 0) out->push_back({piece.text.substr(at, end - at), piece.at_text_start && at == 0});
      at = end;
    }
    return absl::OkStatus();
  }
};

class FixedLength : public PreTokenizerStep {
 public:
  explicit FixedLength(int64_t length) : length_(length) {}

  absl::Status Apply(const Piece& piece, std::deque<std::string>*, std::vector<Piece>* out) const override {
    for (size_t at = 0; at < piece.text.size();) {
      size_t end = at;
      for (int64_t i = 0; i < length_ && end < piece.text.size(); ++i) {
        end += static_cast<size_t>(CharLength(static_cast<unsigned char>(piece.text[end])));
      }
      out->push_back({piece.text.substr(at, end - at), piece.at_text_start && at == 0});
      at = end;
    }
    return absl::OkStatus();
  }

 private:
  int64_t length_;
};

class AddPrefixSpace : public PreTokenizerStep {
 public:
  absl::Status Apply(const Piece& piece, std::deque<std::string>* storage, std::vector<Piece>* out) const override {
    if (piece.text.front() == ' ') {
      out->push_back(piece);
    } else {
      out->push_back({storage->emplace_back(StrCat(" ", piece.text)), piece.at_text_start});
    }
    return absl::OkStatus();
  }
};

class ToAlphabet : public PreTokenizerStep {
 public:
  absl::Status Apply(const Piece& piece, std::deque<std::string>* storage, std::vector<Piece>* out) const override {
    std::string& text = storage->emplace_back();
    AppendInAlphabet(piece.text, &text);
    out->push_back({text, piece.at_text_start});
    return absl::OkStatus();
  }
};

class Metaspace : public PreTokenizerStep {
 public:
  enum class Prepend { kAlways, kFirst, kNever };
  Metaspace(std::string replacement, Prepend prepend, bool split)
      : replacement_(std::move(replacement)), prepend_(prepend), split_(split) {}

  absl::Status Apply(const Piece& piece, std::deque<std::string>* storage, std::vector<Piece>* out) const override {
    std::string& text = storage->emplace_back(ReplaceAll(piece.text, " ", replacement_));
    if (prepend_ == Prepend::kAlways || (prepend_ == Prepend::kFirst && piece.at_text_start)) {
      if (text.compare(0, replacement_.size(), replacement_) != 0) text.insert(0, replacement_);
    }
    const Piece whole{text, piece.at_text_start};
    if (!split_) {
      out->push_back(whole);
      return absl::OkStatus();
    }
    std::vector<Span> matches;
    MANTA_RETURN_IF_ERROR(Pattern::Literal(replacement_).FindAll(text, &matches));
    SplitAt(whole, matches, SplitBehavior::kMergedWithNext, false, out);
    return absl::OkStatus();
  }

 private:
  std::string replacement_;
  Prepend prepend_;
  bool split_;
};

bool IsOneChar(std::string_view text) {
  return !text.empty() && static_cast<size_t>(CharLength(static_cast<unsigned char>(text[0]))) == text.size();
}

// A field that holds exactly one character.
absl::StatusOr<std::string> OneChar(const JsonNode& node) {
  absl::StatusOr<std::string> text = node.AsString();
  if (text.ok() && !IsOneChar(*text)) return node.Error("expected a single character");
  return text;
}

absl::StatusOr<std::unique_ptr<Metaspace>> LoadMetaspace(const JsonNode& node) {
  MANTA_ASSIGN_OR_RETURN(const JsonNode replacement_node, node.Need("replacement"));
  MANTA_ASSIGN_OR_RETURN(std::string replacement, OneChar(replacement_node));
  MANTA_ASSIGN_OR_RETURN(const bool split, node.BoolOr("split", true));
  // add_prefix_space is how older files said "never".
  MANTA_ASSIGN_OR_RETURN(const bool add_prefix_space, node.BoolOr("add_prefix_space", true));
  MANTA_ASSIGN_OR_RETURN(const std::string scheme,
                         node.StringOr("prepend_scheme", add_prefix_space ? "always" : "never"));
  if (scheme != "always" && scheme != "first" && scheme != "never") {
    return node.Error(StrCat("prepend_scheme is \"", scheme, "\", expected always, first or never"));
  }
  if (!add_prefix_space && scheme != "never") {
    return node.Error(StrCat("add_prefix_space is false, but prepend_scheme is \"", scheme, "\""));
  }
  const auto prepend = scheme == "always"  ? Metaspace::Prepend::kAlways
                       : scheme == "first" ? Metaspace::Prepend::kFirst
                                           : Metaspace::Prepend::kNever;
  return std::make_unique<Metaspace>(std::move(replacement), prepend, split);
}

}  // namespace

absl::Status PreTokenizer::Add(const JsonNode& node) {
  MANTA_ASSIGN_OR_RETURN(const std::string type, node.Type());
  if (type == "Sequence") {
    MANTA_ASSIGN_OR_RETURN(const JsonNode list, node.Need("pretokenizers"));
    MANTA_ASSIGN_OR_RETURN(const std::vector<JsonNode> parts, list.AsList());
    for (const JsonNode& part : parts) MANTA_RETURN_IF_ERROR(Add(part));
    return absl::OkStatus();
  }
  if (byte_level_) {  // something follows: the rewriting has to be done
    steps_.push_back(std::make_unique<ToAlphabet>());
    byte_level_ = false;
  }
  const CharTable& chars = CharTable::Get();
  if (type == "Split") {
    MANTA_ASSIGN_OR_RETURN(const JsonNode pattern_node, node.Need("pattern"));
    MANTA_ASSIGN_OR_RETURN(Pattern pattern, Pattern::Load(pattern_node));
    MANTA_ASSIGN_OR_RETURN(const JsonNode behavior_node, node.Need("behavior"));
    MANTA_ASSIGN_OR_RETURN(const SplitBehavior behavior, LoadSplitBehavior(behavior_node));
    MANTA_ASSIGN_OR_RETURN(const bool invert, node.BoolOr("invert", false));
    // A scanner's matches leave nothing between them.
    const bool all_matches = behavior == SplitBehavior::kIsolated || (behavior == SplitBehavior::kRemoved && invert);
    if (steps_.empty() && all_matches) scanner_ = pattern.scanner();
    steps_.push_back(std::make_unique<Split>(std::move(pattern), behavior, invert));
  } else if (type == "ByteLevel") {
    MANTA_ASSIGN_OR_RETURN(const bool add_prefix_space, node.BoolOr("add_prefix_space", true));
    MANTA_ASSIGN_OR_RETURN(const bool use_regex, node.BoolOr("use_regex", true));
    if (add_prefix_space) steps_.push_back(std::make_unique<AddPrefixSpace>());
    if (use_regex) {
      Pattern pattern = Pattern::Gpt2();
      if (steps_.empty()) scanner_ = pattern.scanner();
      steps_.push_back(std::make_unique<Split>(std::move(pattern), SplitBehavior::kIsolated, false));
    }
    byte_level_ = true;
  } else if (type == "Metaspace") {
    MANTA_ASSIGN_OR_RETURN(auto metaspace, LoadMetaspace(node));
    steps_.push_back(std::move(metaspace));
  } else if (type == "Digits") {
    MANTA_ASSIGN_OR_RETURN(const bool individual, node.BoolOr("individual_digits", false));
    steps_.push_back(
        std::make_unique<SplitAtChars>([&chars](char32_t c) { return (chars[c] & kNumber) != 0; },
                                       individual ? SplitBehavior::kIsolated : SplitBehavior::kContiguous));
  } else if (type == "Punctuation") {
    SplitBehavior behavior = SplitBehavior::kIsolated;
    if (const auto behavior_node = node.Find("behavior")) {
      MANTA_ASSIGN_OR_RETURN(behavior, LoadSplitBehavior(*behavior_node));
    }
    steps_.push_back(std::make_unique<SplitAtChars>(
        [&chars](char32_t c) {
          const bool ascii = c > ' ' && c < 0x7F && (chars[c] & (kLetter | kNumber)) == 0;
          return ascii || (chars[c] & kPunctuation) != 0;
        },
        behavior));
  } else if (type == "Whitespace") {
    steps_.push_back(std::make_unique<WordsAndRest>());
  } else if (type == "WhitespaceSplit") {
    steps_.push_back(std::make_unique<SplitAtChars>([&chars](char32_t c) { return (chars[c] & kSpace) != 0; },
                                                    SplitBehavior::kRemoved));
  } else if (type == "CharDelimiterSplit") {
    MANTA_ASSIGN_OR_RETURN(const JsonNode delimiter_node, node.Need("delimiter"));
    MANTA_ASSIGN_OR_RETURN(const std::string delimiter, OneChar(delimiter_node));
    const char32_t wanted = DecodeChar(delimiter.data()).c;
    steps_.push_back(
        std::make_unique<SplitAtChars>([wanted](char32_t c) { return c == wanted; }, SplitBehavior::kRemoved));
  } else if (type == "FixedLength") {
    int64_t length = 5;
    if (const auto length_node = node.Find("length")) {
      MANTA_ASSIGN_OR_RETURN(length, length_node->AsInt(1, int64_t{1} << 40));
    }
    steps_.push_back(std::make_unique<FixedLength>(length));
  } else {
    return node.Error(StrCat("the pre-tokenizer ", type, " is not supported"));
  }
  return absl::OkStatus();
}

absl::StatusOr<PreTokenizer> PreTokenizer::Load(const JsonNode& node) {
  PreTokenizer pre_tokenizer;
  MANTA_RETURN_IF_ERROR(pre_tokenizer.Add(node));
  if (pre_tokenizer.steps_.size() != 1) pre_tokenizer.scanner_ = nullptr;
  return pre_tokenizer;
}

absl::Status PreTokenizer::Apply(const Piece& text, PieceList* out) const {
  out->pieces.push_back(text);
  std::vector<Piece> next;
  for (const auto& step : steps_) {
    next.clear();
    for (const Piece& piece : out->pieces) MANTA_RETURN_IF_ERROR(step->Apply(piece, &out->storage, &next));
    out->pieces.swap(next);
  }
  return absl::OkStatus();
}

}  // namespace manta::tokenizer
