#include "common/tokenizer/normalizer.h"

#include <utf8proc.h>

#include "common/base/status.h"
#include "common/base/strings.h"
#include "common/tokenizer/byte_alphabet.h"
#include "common/tokenizer/pattern.h"
#include "common/tokenizer/unicode.h"
#include "common/tokenizer/unicode_normalizer.h"

namespace manta::tokenizer {
namespace {

class Lowercase : public NormalizerStep {
 public:
  absl::StatusOr<bool> Apply(std::string_view text, std::string* out) const override {
    out->reserve(text.size());
    for (const char* p = text.data(); p < text.data() + text.size();) {
      const DecodedChar next = DecodeChar(p);
      p += next.length;
      if (next.c == 0x130) {  // the one character whose lower case is two
        out->append("i\xCC\x87");
      } else {
        AppendUtf8(static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(next.c))), out);
      }
    }
    return true;
  }
};

class Replace : public NormalizerStep {
 public:
  Replace(Pattern pattern, std::string content) : pattern_(std::move(pattern)), content_(std::move(content)) {}

  absl::StatusOr<bool> Apply(std::string_view text, std::string* out) const override {
    std::vector<Span> matches;
    MANTA_RETURN_IF_ERROR(pattern_.FindAll(text, &matches));
    if (matches.empty()) return false;
    size_t copied = 0;
    for (const Span& match : matches) {
      out->append(text.substr(copied, match.begin - copied));
      out->append(content_);
      copied = match.end;
    }
    out->append(text.substr(copied));
    return true;
  }

  bool RemovesHead(std::string_view text) const override {
    std::vector<Span> matches;
    return content_.empty() && pattern_.FindAll(text, &matches).ok() && !matches.empty() && matches[0].begin == 0 &&
           matches[0].end > 0;
  }

 private:
  Pattern pattern_;
  std::string content_;
};

class Prepend : public NormalizerStep {
 public:
  explicit Prepend(std::string content) : content_(std::move(content)) {}
  absl::StatusOr<bool> Apply(std::string_view text, std::string* out) const override {
    *out = StrCat(content_, text);
    return true;
  }

 private:
  std::string content_;
};

class Strip : public NormalizerStep {
 public:
  Strip(bool left, bool right) : left_(left), right_(right) {}

  absl::StatusOr<bool> Apply(std::string_view text, std::string* out) const override {
    const CharTable& chars = CharTable::Get();
    const char* begin = text.data();
    const char* end = begin + text.size();
    while (left_ && begin < end) {
      const DecodedChar next = DecodeChar(begin);
      if ((chars[next.c] & kSpace) == 0) break;
      begin += next.length;
    }
    while (right_ && begin < end) {
      const DecodedChar last = DecodeCharBefore(end);
      if ((chars[last.c] & kSpace) == 0) break;
      end -= last.length;
    }
    if (static_cast<size_t>(end - begin) == text.size()) return false;
    out->assign(begin, end);
    return true;
  }

  bool RemovesHead(std::string_view text) const override {
    return left_ && (CharTable::Get()[DecodeChar(text.data()).c] & kSpace) != 0;
  }

 private:
  bool left_, right_;
};

class StripAccents : public NormalizerStep {
 public:
  absl::StatusOr<bool> Apply(std::string_view text, std::string* out) const override {
    const CharTable& chars = CharTable::Get();
    for (const char* p = text.data(); p < text.data() + text.size();) {
      const DecodedChar next = DecodeChar(p);
      if ((chars[next.c] & kMark) == 0) out->append(p, static_cast<size_t>(next.length));
      p += next.length;
    }
    return out->size() != text.size();
  }
};

class ByteLevel : public NormalizerStep {
 public:
  absl::StatusOr<bool> Apply(std::string_view text, std::string* out) const override {
    AppendInAlphabet(text, out);
    return true;
  }
};

}  // namespace

absl::Status Normalizer::Add(const JsonNode& node) {
  MANTA_ASSIGN_OR_RETURN(const std::string type, node.Type());
  if (type == "Sequence") {
    MANTA_ASSIGN_OR_RETURN(const JsonNode list, node.Need("normalizers"));
    MANTA_ASSIGN_OR_RETURN(const std::vector<JsonNode> parts, list.AsList());
    for (const JsonNode& part : parts) MANTA_RETURN_IF_ERROR(Add(part));
  } else if (type == "NFC") {
    steps_.push_back(MakeUnicodeNormalizer(NormalForm::kNfc));
  } else if (type == "NFD") {
    steps_.push_back(MakeUnicodeNormalizer(NormalForm::kNfd));
  } else if (type == "NFKC") {
    steps_.push_back(MakeUnicodeNormalizer(NormalForm::kNfkc));
  } else if (type == "NFKD") {
    steps_.push_back(MakeUnicodeNormalizer(NormalForm::kNfkd));
  } else if (type == "Lowercase") {
    steps_.push_back(std::make_unique<Lowercase>());
  } else if (type == "StripAccents") {
    steps_.push_back(std::make_unique<StripAccents>());
  } else if (type == "ByteLevel") {
    steps_.push_back(std::make_unique<ByteLevel>());
  } else if (type == "Strip") {
    MANTA_ASSIGN_OR_RETURN(const bool left, node.BoolOr("strip_left", true));
    MANTA_ASSIGN_OR_RETURN(const bool right, node.BoolOr("strip_right", true));
    steps_.push_back(std::make_unique<Strip>(left, right));
  } else if (type == "Prepend") {
    MANTA_ASSIGN_OR_RETURN(const JsonNode prepend, node.Need("prepend"));
    MANTA_ASSIGN_OR_RETURN(std::string content, prepend.AsString());
    steps_.push_back(std::make_unique<Prepend>(std::move(content)));
  } else if (type == "Replace") {
    MANTA_ASSIGN_OR_RETURN(const JsonNode pattern_node, node.Need("pattern"));
    MANTA_ASSIGN_OR_RETURN(Pattern pattern, Pattern::Load(pattern_node));
    MANTA_ASSIGN_OR_RETURN(const JsonNode content_node, node.Need("content"));
    MANTA_ASSIGN_OR_RETURN(std::string content, content_node.AsString());
    steps_.push_back(std::make_unique<Replace>(std::move(pattern), std::move(content)));
  } else {
    return node.Error(StrCat("the normalizer ", type, " is not supported"));
  }
  return absl::OkStatus();
}

absl::StatusOr<Normalizer> Normalizer::Load(const JsonNode& node) {
  Normalizer normalizer;
  MANTA_RETURN_IF_ERROR(normalizer.Add(node));
  return normalizer;
}

absl::StatusOr<std::string_view> Normalizer::Apply(std::string_view text, std::string* buffer,
                                                   bool* head_removed) const {
  *head_removed = false;
  std::string next;
  for (const auto& step : steps_) {
    if (text.empty()) break;
    if (step->RemovesHead(text)) *head_removed = true;
    next.clear();
    MANTA_ASSIGN_OR_RETURN(const bool changed, step->Apply(text, &next));
    if (!changed) continue;
    buffer->swap(next);
    text = *buffer;
  }
  return text;
}

}  // namespace manta::tokenizer
