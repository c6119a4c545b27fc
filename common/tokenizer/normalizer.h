// Normalizer: what tokenizer.json's "normalizer" does to a text before it is split. Const and thread-safe after
// loading.
//
// Known: NFC, NFD, NFKC, NFKD, Lowercase, Replace, Prepend, Strip, StripAccents, ByteLevel, Sequence. Others are
// refused.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "common/tokenizer/json_node.h"

namespace manta::tokenizer {

class NormalizerStep {
 public:
  virtual ~NormalizerStep() = default;
  // Writes the normalised `text` (not empty, valid UTF-8) to `*out` (empty) and returns true; or returns false where
  // the text stays as it is.
  virtual absl::StatusOr<bool> Apply(std::string_view text, std::string* out) const = 0;
  // Whether Apply may take away the first character, so that what is left does not begin where the text began.
  virtual bool RemovesHead(std::string_view) const { return false; }
};

class Normalizer {
 public:
  // Does nothing.
  Normalizer() = default;
  static absl::StatusOr<Normalizer> Load(const JsonNode& node);

  bool empty() const { return steps_.empty(); }

  // The normalised text: `text` itself where nothing changes, else a view of `*buffer`. `*head_removed` is set to
  // whether the text's first character was taken away (Metaspace's prepend_scheme "first" asks).
  absl::StatusOr<std::string_view> Apply(std::string_view text, std::string* buffer, bool* head_removed) const;

 private:
  absl::Status Add(const JsonNode& node);

  std::vector<std::unique_ptr<const NormalizerStep>> steps_;
};

}  // namespace manta::tokenizer
