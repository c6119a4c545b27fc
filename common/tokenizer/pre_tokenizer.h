// PreTokenizer: splits a text into the pieces within which BPE merges, as tokenizer.json's "pre_tokenizer" says. Const
// and thread-safe after loading.
//
// Known: Split (all behaviours), ByteLevel, Metaspace, Digits, Punctuation, Whitespace, WhitespaceSplit,
// CharDelimiterSplit, FixedLength, Sequence. Others are refused.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/tokenizer/json_node.h"
#include "common/tokenizer/scanner.h"

namespace manta::tokenizer {

struct Piece {
  std::string_view text;  // not empty
  bool at_text_start;     // begins where the text that was given to Encode begins
};

// Pieces, and what those that differ from the text look at. Views stay valid until Clear.
struct PieceList {
  std::vector<Piece> pieces;
  std::deque<std::string> storage;
  void Clear() {
    pieces.clear();
    storage.clear();
  }
};

class PreTokenizerStep {
 public:
  virtual ~PreTokenizerStep() = default;
  // Appends the pieces of `piece`; `*storage` keeps texts that are new.
  virtual absl::Status Apply(const Piece& piece, std::deque<std::string>* storage, std::vector<Piece>* out) const = 0;
};

class PreTokenizer {
 public:
  // One piece: the whole text.
  PreTokenizer() = default;
  static absl::StatusOr<PreTokenizer> Load(const JsonNode& node);

  // Whether pieces are raw bytes, each of which stands for its character in the byte-level alphabet: the last step is
  // ByteLevel, whose rewriting is left to the vocabulary's side.
  bool byte_level() const { return byte_level_; }

  // Set where splitting is this scanner's and nothing else: the caller may then run it by itself.
  ScanFunction scanner() const { return scanner_; }

  absl::Status Apply(const Piece& text, PieceList* out) const;

 private:
  absl::Status Add(const JsonNode& node);

  std::vector<std::unique_ptr<const PreTokenizerStep>> steps_;
  bool byte_level_ = false;
  ScanFunction scanner_ = nullptr;
};

}  // namespace manta::tokenizer
