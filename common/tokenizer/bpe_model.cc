#include "common/tokenizer/bpe_model.h"

#include "common/base/status.h"
#include "common/base/strings.h"
#include "common/tokenizer/byte_alphabet.h"
#include "common/tokenizer/merge.h"
#include "common/tokenizer/unicode.h"

namespace manta::tokenizer {

std::optional<int32_t> BpeModel::IdOf(std::string_view token) const {
  const auto it = vocab_.find(token);
  return it == vocab_.end() ? std::nullopt : std::optional<int32_t>(it->second);
}

std::string_view BpeModel::TokenOf(int32_t id) const {
  return id >= 0 && id < size() ? tokens_[static_cast<size_t>(id)] : std::string_view();
}

int32_t BpeModel::SymbolOf(std::string_view text, bool first, bool last) const {
  if ((first || prefix_.empty()) && (!last || suffix_.empty())) {
    if (text.size() == 1 && !byte_level_) return first_ids_[static_cast<unsigned char>(text[0])];
    return IdOf(text).value_or(kNone);
  }
  return IdOf(StrCat(first ? "" : prefix_, text, last ? suffix_ : "")).value_or(kNone);
}

absl::Status BpeModel::AppendSymbols(std::string_view piece, std::vector<int32_t>* symbols) const {
  // An unknown character waits, so that those that follow can join it (fuse_unk).
  bool unknown_waits = false;
  size_t length = 0;
  for (size_t at = 0; at < piece.size(); at += length) {
    length = static_cast<size_t>(CharLength(static_cast<unsigned char>(piece[at])));
    const bool first = at == 0, last = at + length == piece.size();
    const std::string_view text = piece.substr(at, length);
    const int32_t id = SymbolOf(text, first, last);
    if (id != kNone) {
      if (unknown_waits) symbols->push_back(unk_id_);
      unknown_waits = false;
      symbols->push_back(id);
      continue;
    }
    if (byte_fallback_) {
      const std::string written = StrCat(first ? "" : prefix_, text, last ? suffix_ : "");
      const size_t begin = symbols->size();
      bool all = true;
      for (const char byte : written) {
        symbols->push_back(fallback_ids_[static_cast<unsigned char>(byte)]);
        all = all && symbols->back() != kNone;
      }
      if (all) continue;
      symbols->resize(begin);
    }
    if (!unk_token_.has_value()) continue;  // such characters vanish
    if (unk_id_ == kNone) {
      return UserError(StrCat("the text has \"", text, "\", which the vocabulary lacks, and the unknown token \"",
                              *unk_token_, "\" is not in the vocabulary either"));
    }
    if (unknown_waits && !fuse_unk_) symbols->push_back(unk_id_);
    unknown_waits = true;
  }
  if (unknown_waits) symbols->push_back(unk_id_);
  return absl::OkStatus();
}

absl::Status BpeModel::EncodeUncached(std::string_view piece, std::vector<int32_t>* ids) const {
  if (ignore_merges_) {
    const auto& vocab = byte_level_ ? byte_vocab_ : vocab_;
    if (const auto it = vocab.find(piece); it != vocab.end()) {
      ids->push_back(it->second);
      return absl::OkStatus();
    }
  }
  const size_t begin = ids->size();
  if (whole_alphabet_) {
    for (const char byte : piece) ids->push_back(first_ids_[static_cast<unsigned char>(byte)]);
  } else if (byte_level_) {
    std::string written;
    AppendInAlphabet(piece, &written);
    MANTA_RETURN_IF_ERROR(AppendSymbols(written, ids));
  } else {
    MANTA_RETURN_IF_ERROR(AppendSymbols(piece, ids));
  }
  MergeSymbols(merges_, begin, ids);
  return absl::OkStatus();
}

}  // namespace manta::tokenizer
