// Tokenizer: text to token ids and back, as Hugging Face's tokenizer.json says.
//
// Covers BPE in both of its forms: byte-level (GPT-2, Llama 3, Qwen) and SentencePiece-style (Llama 2, Mistral: "▁" for
// spaces, bytes as fallback), with added tokens, normalisers, pre-tokenisers, post-processors and decoders. Encoding
// gives the ids that Hugging Face `tokenizers` gives. What is not covered (WordPiece, Unigram, ...) is refused by Load.
//
// Thread-safety: a loaded tokenizer is const and may be used by any number of threads. A StreamDecoder belongs to one.
// Ownership: shared; a StreamDecoder keeps its tokenizer alive.
// Failure: Load gives one error that names the file and the field. Encode fails only for text that is not UTF-8.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/tokenizer/special_tokens.h"

namespace manta::tokenizer {

class Tokenizer {
 public:
  // Reads dir/tokenizer.json, and the special tokens' names from the files beside it (special_tokens.h).
  [[nodiscard]] static absl::StatusOr<std::shared_ptr<const Tokenizer>> Load(const std::filesystem::path& dir);

  // The same from the content of a tokenizer.json; `name` stands for the file in errors.
  [[nodiscard]] static absl::StatusOr<std::shared_ptr<const Tokenizer>> FromJson(
      std::string_view json, std::string_view name = "tokenizer.json", SpecialTokens special_tokens = {});

  ~Tokenizer();
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  // Added tokens that stand in the text are recognised. With `add_special_tokens`, what the post-processor puts around
  // a single sequence (a beginning-of-sequence token, say) is added. INVALID_ARGUMENT where `text` is not UTF-8.
  [[nodiscard]] absl::StatusOr<std::vector<int32_t>> Encode(std::string_view text, bool add_special_tokens) const;

  // Bytes that form no UTF-8 become U+FFFD. Ids that no token has are left out: models round their vocabulary up.
  [[nodiscard]] std::string Decode(absl::Span<const int32_t> ids, bool skip_special_tokens) const;

  // The token's text as the vocabulary writes it ("Ġthe"), added tokens included.
  [[nodiscard]] std::optional<int32_t> IdOf(std::string_view token) const;
  [[nodiscard]] std::optional<std::string> TokenOf(int32_t id) const;

  // Whether the file marks `id` as special.
  [[nodiscard]] bool IsSpecial(int32_t id) const;

  // One past the greatest id.
  [[nodiscard]] int32_t vocab_size() const;

  [[nodiscard]] const SpecialTokens& special_tokens() const;
  [[nodiscard]] std::optional<int32_t> bos_id() const;
  [[nodiscard]] std::optional<int32_t> eos_id() const;
  [[nodiscard]] std::optional<int32_t> pad_id() const;
  [[nodiscard]] std::optional<int32_t> unk_id() const;

 private:
  friend class StreamDecoder;
  struct Parts;

  // How text comes from tokens, as far as streaming has to know: by bytes that may be parts of characters; by texts,
  // among which runs of byte-fallback tokens; by texts otherwise.
  enum class Streaming { kBytes, kByteFallback, kOther };
  Streaming streaming() const;
  // False where Decode leaves `id` out. `*bytes`: what the token stands for (kBytes), or the byte of a byte-fallback
  // token, empty for others (kByteFallback).
  bool StreamBytes(int32_t id, bool skip_special_tokens, std::string* bytes) const;
  explicit Tokenizer(std::unique_ptr<const Parts> parts);

  std::unique_ptr<const Parts> parts_;
};

}  // namespace manta::tokenizer
