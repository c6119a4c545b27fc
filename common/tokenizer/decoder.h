// Decoder: tokens back to text, as tokenizer.json's "decoder" says. Const and thread-safe after loading.
//
// Known: ByteLevel, ByteFallback, Fuse, Replace, Strip, Metaspace, Sequence. Others are refused. Without a
// decoder, tokens are joined by spaces.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/tokenizer/json_node.h"

namespace manta::tokenizer {

class DecoderStep {
 public:
  virtual ~DecoderStep() = default;
  virtual void Apply(std::vector<std::string>* tokens) const = 0;
};

class Decoder {
 public:
  Decoder() = default;
  static absl::StatusOr<Decoder> Load(const JsonNode& node);

  std::string Decode(std::vector<std::string> tokens) const;

  // Whether decoding is ByteLevel and nothing else: then a token's text is BytesOfToken, whatever stands around it, and
  // the whole is their bytes read as UTF-8.
  bool byte_level_only() const { return byte_level_only_; }
  // Whether byte-fallback tokens are put together.
  bool byte_fallback() const { return byte_fallback_; }

 private:
  absl::Status Add(const JsonNode& node);

  bool joins_with_spaces_ = true;
  bool byte_level_only_ = false;
  bool byte_fallback_ = false;
  std::vector<std::unique_ptr<const DecoderStep>> steps_;
};

// The bytes that a token stands for in the byte-level alphabet; its own where it has other characters.
std::string BytesOfToken(std::string_view token);

// "<0xE2>" -> 0xE2; nothing for another token.
std::optional<char> ByteOfFallbackToken(std::string_view token);

}  // namespace manta::tokenizer
