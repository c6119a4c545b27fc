#include "common/tokenizer/stream_decoder.h"

#include <utility>

#include "absl/types/span.h"
#include "common/tokenizer/unicode.h"

namespace manta::tokenizer {
namespace {

constexpr std::string_view kReplacementChar = "\xEF\xBF\xBD";
// Decoders of no known kind may hold back this many tokens: a character has at most four bytes.
constexpr size_t kMaxHeldBack = 4;
// Tokens without any text are not kept for ever.
constexpr size_t kMaxWindow = 64;

// Whether `bytes` may become UTF-8 by bytes that follow, and is not yet.
bool EndsWithinChar(const std::string& bytes) {
  const size_t complete = CompleteUtf8Prefix(bytes);
  return complete < bytes.size() && ValidUtf8Prefix(bytes) == complete;
}

}  // namespace

StreamDecoder::StreamDecoder(std::shared_ptr<const Tokenizer> tokenizer, bool skip_special_tokens)
    : tokenizer_(std::move(tokenizer)), skip_special_tokens_(skip_special_tokens), kind_(tokenizer_->streaming()) {}

std::string StreamDecoder::Push(int32_t id) {
  std::string bytes;
  if (!tokenizer_->StreamBytes(id, skip_special_tokens_, &bytes)) return std::string();
  if (kind_ == Tokenizer::Streaming::kBytes) return PushBytes(bytes);
  if (kind_ == Tokenizer::Streaming::kOther) return PushToken(id, false);
  if (bytes.empty()) {
    bytes_.clear();
  } else {
    bytes_ += bytes;
  }
  const bool hold_back = EndsWithinChar(bytes_);
  std::string added = PushToken(id, hold_back);
  if (!hold_back && !IsUtf8(bytes_)) bytes_.clear();  // nothing can mend this run: no need to keep it
  return added;
}

std::string StreamDecoder::PushBytes(const std::string& bytes) {
  bytes_ += bytes;
  const size_t complete = CompleteUtf8Prefix(bytes_);
  std::string text;
  AppendLossyUtf8(std::string_view(bytes_).substr(0, complete), &text);
  bytes_.erase(0, complete);
  return text;
}

std::string StreamDecoder::NewText() const {
  const std::string text = tokenizer_->Decode(window_, skip_special_tokens_);
  if (text.starts_with(given_text_)) return text.substr(given_text_.size());
  // What was given out reads otherwise now; it stays, and what follows is read by itself.
  return tokenizer_->Decode(absl::MakeConstSpan(window_).subspan(given_), skip_special_tokens_);
}

std::string StreamDecoder::PushToken(int32_t id, bool hold_back) {
  window_.push_back(id);
  if (hold_back) return std::string();
  std::string added = NewText();
  if (kind_ == Tokenizer::Streaming::kOther && added.ends_with(kReplacementChar) &&
      window_.size() - given_ <= kMaxHeldBack) {
    return std::string();
  }
  if (added.empty() && window_.size() < kMaxWindow) return added;
  // The tokens given out just now are the context of those to come.
  window_.erase(window_.begin(), window_.begin() + static_cast<std::ptrdiff_t>(given_));
  given_ = window_.size();
  given_text_ = tokenizer_->Decode(window_, skip_special_tokens_);
  return added;
}

std::string StreamDecoder::Finish() {
  std::string added;
  if (kind_ == Tokenizer::Streaming::kBytes) {
    AppendLossyUtf8(bytes_, &added);
  } else {
    added = NewText();
  }
  bytes_.clear();
  window_.clear();
  given_ = 0;
  given_text_.clear();
  return added;
}

}  // namespace manta::tokenizer
