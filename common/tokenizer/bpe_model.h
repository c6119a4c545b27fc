// BpeModel: tokenizer.json's "model" of type BPE: the vocabulary, and the ids of a piece of text.
//
// Two forms of pieces. Byte-level: raw bytes, each standing for its character in the byte-level alphabet
// (byte_alphabet.h); the symbols to begin with are bytes. Else: UTF-8, and the symbols are characters; one that the
// vocabulary lacks becomes its bytes' tokens ("<0xE2>") with byte_fallback, the unknown token where there is one, or
// nothing. Const and thread-safe after loading.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/tokenizer/json_node.h"
#include "common/tokenizer/merge_table.h"
#include "common/tokenizer/word_cache.h"

namespace manta::tokenizer {

class BpeModel {
 public:
  // Ids are below this: a greater one is taken to be a broken file rather than a reason to allocate a table for it.
  static constexpr int64_t kMaxId = (int64_t{1} << 24) - 1;

  // `byte_level`: pieces are raw bytes.
  static absl::StatusOr<BpeModel> Load(const JsonNode& node, bool byte_level);

  // Appends the ids of `piece`, which is not empty. INVALID_ARGUMENT where the unknown token is needed but is not in
  // the vocabulary. `*cache` is asked first and told afterwards.
  absl::Status Encode(std::string_view piece, WordCache* cache, std::vector<int32_t>* ids) const {
    if (piece.size() > WordCache::kMaxBytes) return EncodeUncached(piece, ids);
    const WordCache::Key key = WordCache::MakeKey(piece);
    if (cache->Find(key, ids)) return absl::OkStatus();
    const size_t begin = ids->size();
    absl::Status status = EncodeUncached(piece, ids);
    if (status.ok()) cache->Put(key, ids->data() + begin, ids->size() - begin);
    return status;
  }

  std::optional<int32_t> IdOf(std::string_view token) const;
  // The token's text; null data where no token has the id.
  std::string_view TokenOf(int32_t id) const;
  int32_t size() const { return static_cast<int32_t>(tokens_.size()); }  // one past the greatest id
  size_t num_tokens() const { return vocab_.size(); }

 private:
  friend class BpeLoader;
  BpeModel() = default;

  absl::Status EncodeUncached(std::string_view piece, std::vector<int32_t>* ids) const;
  // The symbols that merging begins with.
  absl::Status AppendSymbols(std::string_view piece, std::vector<int32_t>* symbols) const;
  int32_t SymbolOf(std::string_view text, bool first, bool last) const;  // -1 where the vocabulary lacks it

  static constexpr int32_t kNone = -1;

  std::unique_ptr<std::string> texts_;    // all tokens, one after another
  std::vector<std::string_view> tokens_;  // [size], by id
  absl::flat_hash_map<std::string_view, int32_t> vocab_;
  MergeTable merges_;

  bool byte_level_ = false;
  bool ignore_merges_ = false;
  bool fuse_unk_ = false;
  std::string prefix_, suffix_;  // continuing_subword_prefix, end_of_word_suffix
  std::optional<std::string> unk_token_;
  int32_t unk_id_ = kNone;
  bool byte_fallback_ = false;
  std::array<int32_t, 256> fallback_ids_;  // of "<0x00>" to "<0xFF>"
  std::array<int32_t, 256> first_ids_;     // byte-level: of each byte; else: of each ASCII character
  bool whole_alphabet_ = false;            // byte-level: every byte has its token
  // Byte-level and ignore_merges: the vocabulary by the bytes that its tokens stand for.
  std::unique_ptr<std::string> byte_texts_;
  absl::flat_hash_map<std::string_view, int32_t> byte_vocab_;
};

}  // namespace manta::tokenizer
