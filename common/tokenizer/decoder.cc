#include "common/tokenizer/decoder.h"

#include <algorithm>
#include <cctype>
#include <optional>

#include "common/base/status.h"
#include "common/base/strings.h"
#include "common/tokenizer/byte_alphabet.h"
#include "common/tokenizer/pattern.h"
#include "common/tokenizer/unicode.h"

namespace manta::tokenizer {
namespace {

constexpr std::string_view kReplacementChar = "\xEF\xBF\xBD";

std::string Join(const std::vector<std::string>& tokens, std::string_view separator) {
  std::string whole;
  for (const std::string& token : tokens) {
    if (&token != tokens.data()) whole += separator;
    whole += token;
  }
  return whole;
}

class ByteLevel : public DecoderStep {
 public:
  void Apply(std::vector<std::string>* tokens) const override {
    std::string bytes;
    for (const std::string& token : *tokens) bytes += BytesOfToken(token);
    std::string text;
    AppendLossyUtf8(bytes, &text);
    *tokens = {std::move(text)};
  }
};

// A run of byte tokens is one text where it is UTF-8, else a U+FFFD for each byte.
class ByteFallback : public DecoderStep {
 public:
  void Apply(std::vector<std::string>* tokens) const override {
    std::vector<std::string> out;
    std::string run;
    const auto flush = [&] {
      if (run.empty()) return;
      if (IsUtf8(run)) {
        out.push_back(run);
      } else {
        out.insert(out.end(), run.size(), std::string(kReplacementChar));
      }
      run.clear();
    };
    for (std::string& token : *tokens) {
      if (const auto byte = ByteOfFallbackToken(token)) {
        run.push_back(*byte);
        continue;
      }
      flush();
      out.push_back(std::move(token));
    }
    flush();
    tokens->swap(out);
  }
};

class Fuse : public DecoderStep {
 public:
  void Apply(std::vector<std::string>* tokens) const override { *tokens = {Join(*tokens, "")}; }
};

class Replace : public DecoderStep {
 public:
  Replace(Pattern pattern, std::string content) : pattern_(std::move(pattern)), content_(std::move(content)) {}
  void Apply(std::vector<std::string>* tokens) const override {
    std::vector<Span> matches;
    for (std::string& token : *tokens) {
      matches.clear();
      if (!pattern_.FindAll(token, &matches).ok() || matches.empty())
        continue;  // beyond the regex limits: left as it is
      std::string out;
      size_t copied = 0;
      for (const Span& match : matches) {
        out.append(token, copied, match.begin - copied);
        out.append(content_);
        copied = match.end;
      }
      out.append(token, copied);
      token = std::move(out);
    }
  }

 private:
  Pattern pattern_;
  std::string content_;
};

// Takes up to `start` times a character from the front of each token, and up to `stop` times from its end.
class Strip : public DecoderStep {
 public:
  Strip(std::string content, int64_t start, int64_t stop) : content_(std::move(content)), start_(start), stop_(stop) {}
  void Apply(std::vector<std::string>* tokens) const override {
    for (std::string& token : *tokens) {
      std::string_view text = token;
      for (int64_t i = 0; i < start_ && text.starts_with(content_); ++i) text.remove_prefix(content_.size());
      for (int64_t i = 0; i < stop_ && text.ends_with(content_); ++i) text.remove_suffix(content_.size());
      if (text.size() != token.size()) token = std::string(text);
    }
  }

 private:
  std::string content_;
  int64_t start_, stop_;
};

class Metaspace : public DecoderStep {
 public:
  Metaspace(std::string replacement, bool prepended) : replacement_(std::move(replacement)), prepended_(prepended) {}
  void Apply(std::vector<std::string>* tokens) const override {
    for (size_t i = 0; i < tokens->size(); ++i) {
      (*tokens)[i] = ReplaceAll((*tokens)[i], replacement_, i == 0 && prepended_ ? "" : " ");
    }
  }

 private:
  std::string replacement_;
  bool prepended_;
};

absl::StatusOr<std::unique_ptr<const DecoderStep>> LoadReplace(const JsonNode& node) {
  MANTA_ASSIGN_OR_RETURN(const JsonNode pattern_node, node.Need("pattern"));
  MANTA_ASSIGN_OR_RETURN(Pattern pattern, Pattern::Load(pattern_node));
  MANTA_ASSIGN_OR_RETURN(const JsonNode content_node, node.Need("content"));
  MANTA_ASSIGN_OR_RETURN(std::string content, content_node.AsString());
  return std::make_unique<Replace>(std::move(pattern), std::move(content));
}

absl::StatusOr<std::unique_ptr<const DecoderStep>> LoadStrip(const JsonNode& node) {
  MANTA_ASSIGN_OR_RETURN(const JsonNode content_node, node.Need("content"));
  MANTA_ASSIGN_OR_RETURN(std::string content, content_node.AsString());
  if (content.empty()) return content_node.Error("expected a single character");
  MANTA_ASSIGN_OR_RETURN(const JsonNode start_node, node.Need("start"));
  MANTA_ASSIGN_OR_RETURN(const int64_t start, start_node.AsInt(0, INT32_MAX));
  MANTA_ASSIGN_OR_RETURN(const JsonNode stop_node, node.Need("stop"));
  MANTA_ASSIGN_OR_RETURN(const int64_t stop, stop_node.AsInt(0, INT32_MAX));
  return std::make_unique<Strip>(std::move(content), start, stop);
}

absl::StatusOr<std::unique_ptr<const DecoderStep>> LoadMetaspace(const JsonNode& node) {
  MANTA_ASSIGN_OR_RETURN(const JsonNode replacement_node, node.Need("replacement"));
  MANTA_ASSIGN_OR_RETURN(std::string replacement, replacement_node.AsString());
  if (replacement.empty()) return replacement_node.Error("expected a single character");
  MANTA_ASSIGN_OR_RETURN(const bool add_prefix_space, node.BoolOr("add_prefix_space", true));
  MANTA_ASSIGN_OR_RETURN(const std::string scheme,
                         node.StringOr("prepend_scheme", add_prefix_space ? "always" : "never"));
  return std::make_unique<Metaspace>(std::move(replacement), scheme != "never");
}

}  // namespace

std::string BytesOfToken(std::string_view token) {
  std::optional<std::string> bytes = BytesOfAlphabet(token);
  return bytes.has_value() ? *std::move(bytes) : std::string(token);
}

std::optional<char> ByteOfFallbackToken(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token.back() != '>') return std::nullopt;
  int value = 0;
  for (const char c : token.substr(3, 2)) {
    if (!std::isxdigit(static_cast<unsigned char>(c))) return std::nullopt;
    value = value * 16 + (c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10);
  }
  return static_cast<char>(value);
}

absl::Status Decoder::Add(const JsonNode& node) {
  MANTA_ASSIGN_OR_RETURN(const std::string type, node.Type());
  std::unique_ptr<const DecoderStep> step;
  if (type == "Sequence") {
    MANTA_ASSIGN_OR_RETURN(const JsonNode list, node.Need("decoders"));
    MANTA_ASSIGN_OR_RETURN(const std::vector<JsonNode> parts, list.AsList());
    for (const JsonNode& part : parts) MANTA_RETURN_IF_ERROR(Add(part));
    return absl::OkStatus();
  }
  byte_level_only_ = type == "ByteLevel" && steps_.empty();
  if (type == "ByteLevel") {
    step = std::make_unique<ByteLevel>();
  } else if (type == "ByteFallback") {
    step = std::make_unique<ByteFallback>();
    byte_fallback_ = true;
  } else if (type == "Fuse") {
    step = std::make_unique<Fuse>();
  } else if (type == "Replace") {
    MANTA_ASSIGN_OR_RETURN(step, LoadReplace(node));
  } else if (type == "Strip") {
    MANTA_ASSIGN_OR_RETURN(step, LoadStrip(node));
  } else if (type == "Metaspace") {
    MANTA_ASSIGN_OR_RETURN(step, LoadMetaspace(node));
  } else {
    return node.Error(StrCat("the decoder ", type, " is not supported"));
  }
  steps_.push_back(std::move(step));
  return absl::OkStatus();
}

absl::StatusOr<Decoder> Decoder::Load(const JsonNode& node) {
  Decoder decoder;
  decoder.joins_with_spaces_ = false;
  MANTA_RETURN_IF_ERROR(decoder.Add(node));
  return decoder;
}

std::string Decoder::Decode(std::vector<std::string> tokens) const {
  for (const auto& step : steps_) step->Apply(&tokens);
  return Join(tokens, joins_with_spaces_ ? " " : "");
}

}  // namespace manta::tokenizer
