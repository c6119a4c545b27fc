// StreamDecoder: text as its tokens arrive, never a part of a character.
//
// Push returns the text that has become certain; what may still be the beginning of a character is held back (at most four
// tokens). The pieces together with Finish are what Tokenizer::Decode gives for all the ids, with one exception: where a
// run of byte-fallback tokens turns out not to be UTF-8, Decode replaces the whole run, and the stream only what it had
// not given out yet. Not thread-safe; keeps its tokenizer alive. Cannot fail.
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
  std::string NewText(const std::string& text) const;

  std::shared_ptr<const Tokenizer> tokenizer_;
  bool skip_special_tokens_;
  // The last tokens whose text was given out (context: a decoder may strip a leading space), then those held back.
  std::vector<int32_t> window_;
  size_t given_ = 0;         // tokens of `window_` whose text was given out
  std::string given_text_;   // Decode of those
};

}  // namespace manta::tokenizer
