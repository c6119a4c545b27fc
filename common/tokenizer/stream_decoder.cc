#include "common/tokenizer/stream_decoder.h"

#include <utility>

#include "absl/types/span.h"

namespace manta::tokenizer {
namespace {

constexpr std::string_view kReplacementChar = "\xEF\xBF\xBD";
// A character has at most four bytes, so no more tokens than that can wait for its end.
constexpr size_t kMaxHeldBack = 4;

}  // namespace

StreamDecoder::StreamDecoder(std::shared_ptr<const Tokenizer> tokenizer, bool skip_special_tokens)
    : tokenizer_(std::move(tokenizer)), skip_special_tokens_(skip_special_tokens) {}

std::string StreamDecoder::NewText(const std::string& text) const {
  // Where later bytes have changed how earlier ones read, what was given out stays, and the whole follows.
  return text.starts_with(given_text_) ? text.substr(given_text_.size()) : text;
}

std::string StreamDecoder::Push(int32_t id) {
  window_.push_back(id);
  std::string text = tokenizer_->Decode(window_, skip_special_tokens_);
  const bool certain = !text.ends_with(kReplacementChar) || window_.size() - given_ > kMaxHeldBack;
  std::string added = NewText(text);
  if (!certain || added.empty()) return std::string();
  // The tokens given out just now are the context of those to come.
  window_.erase(window_.begin(), window_.begin() + static_cast<std::ptrdiff_t>(given_));
  given_ = window_.size();
  given_text_ = tokenizer_->Decode(window_, skip_special_tokens_);
  return added;
}

std::string StreamDecoder::Finish() {
  std::string added = NewText(tokenizer_->Decode(window_, skip_special_tokens_));
  window_.clear();
  given_ = 0;
  given_text_.clear();
  return added;
}

}  // namespace manta::tokenizer
