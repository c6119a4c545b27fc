// StreamDecoder: text as its tokens arrive, never a part of a character.
//
// Push returns the text that has become certain; what may still be the beginning of a character (at most three bytes)
// is held back. The pieces together with Finish are what Tokenizer::Decode gives for all the ids, except where that
// goes back on what has been given out: Decode replaces the whole of a run of byte-fallback tokens that turns out not
// to be UTF-8, the stream only what comes after; and a decoder may strip the end of the whole text. Not thread-safe;
// keeps its tokenizer alive. Cannot fail.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/tokenizer/tokenizer.h"

namespace manta::tokenizer {

class StreamDecoder {
 public:
  StreamDecoder(std::shared_ptr<const Tokenizer> tokenizer, bool skip_special_tokens);

  // New text, possibly none.
  [[nodiscard]] std::string Push(int32_t id);

  // What was held back; bytes that form no UTF-8 become U+FFFD. The decoder then starts anew.
  [[nodiscard]] std::string Finish();

 private:
  std::string PushBytes(const std::string& bytes);
  std::string PushToken(int32_t id, bool hold_back);
  std::string NewText() const;

  std::shared_ptr<const Tokenizer> tokenizer_;
  bool skip_special_tokens_;
  Tokenizer::Streaming kind_;
  // kBytes: those held back. kByteFallback: those of the run of byte-fallback tokens that is going on.
  std::string bytes_;
  // Other kinds: the last tokens whose text was given out (what comes before decides whether a leading space is
  // stripped), then those held back.
  std::vector<int32_t> window_;
  size_t given_ = 0;        // tokens of `window_` whose text was given out
  std::string given_text_;  // Decode of those
};

}  // namespace manta::tokenizer
