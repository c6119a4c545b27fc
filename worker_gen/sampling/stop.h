// When a sample ends: its length, an end-of-sequence token, a stop token or a stop string.
//
// A StopChecker belongs to one sample and sees its tokens in order. Nothing ends a sample before min_new_tokens but its
// length; until then end-of-sequence and stop tokens are banned from being drawn. A stop string is looked for in the
// text of the new tokens (special tokens left out), also across tokens; the tokens that spell it stay part of the
// sample. Not thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/types/span.h"
#include "manta/v1/common.pb.h"
#include "worker_gen/sampling/sampling_options.h"

namespace manta::gen {

// Turns tokens into text piece by piece. The service gives one that wraps the model's tokenizer.
class TextStream {
 public:
  virtual ~TextStream() = default;
  // The text that `token` adds; bytes of a character that is not complete yet may be held back.
  virtual std::string Append(int32_t token) = 0;
};

class StopChecker {
 public:
  // `text` may be null where there are no stop strings. `eos_ids` are the model's.
  StopChecker(const SamplingOptions& options, absl::Span<const int32_t> eos_ids, std::unique_ptr<TextStream> text);

  // Tokens that may not be drawn as new token number `position` (0-based).
  absl::Span<const int32_t> Banned(int32_t position) const {
    return position < min_new_tokens_ ? absl::MakeConstSpan(stop_ids_) : absl::Span<const int32_t>();
  }
  // Whether the sample ends with this, its next token; UNSPECIFIED: it goes on.
  v1::FinishReason Append(int32_t token);
  // The stop string that ended it, or "".
  const std::string& stop_string() const { return stop_string_; }

 private:
  bool FindStopString(std::string_view piece);

  const int32_t max_new_tokens_;
  const int32_t min_new_tokens_;
  std::vector<int32_t> stop_ids_;  // sorted
  std::vector<std::string> stop_strings_;
  size_t longest_ = 0;  // stop string, in bytes
  std::unique_ptr<TextStream> text_;
  std::string tail_;  // the last longest_ - 1 bytes of the text
  std::string stop_string_;
  int32_t num_tokens_ = 0;
};

}  // namespace manta::gen
