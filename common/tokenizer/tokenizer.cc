#include "common/tokenizer/tokenizer.h"

#include <algorithm>
#include <utility>

#include "common/base/file.h"
#include "common/base/status.h"
#include "common/base/strings.h"
#include "common/tokenizer/added_tokens.h"
#include "common/tokenizer/bpe_model.h"
#include "common/tokenizer/decoder.h"
#include "common/tokenizer/json_node.h"
#include "common/tokenizer/normalizer.h"
#include "common/tokenizer/post_processor.h"
#include "common/tokenizer/pre_tokenizer.h"
#include "common/tokenizer/unicode.h"
#include "common/tokenizer/word_cache.h"

namespace manta::tokenizer {
namespace {

constexpr uint64_t kMaxFileBytes = uint64_t{1} << 30;

// A part of tokenizer.json that may be absent or null.
template <typename T>
absl::StatusOr<T> LoadOptional(const JsonNode& root, std::string_view key) {
  const auto node = root.Find(key);
  return node.has_value() ? T::Load(*node) : T();
}

}  // namespace

struct Tokenizer::Parts {
  explicit Parts(BpeModel bpe) : model(std::move(bpe)) {}

  absl::Status EncodeText(std::string_view text, bool at_start, WordCache* cache, std::vector<int32_t>* ids) const;
  absl::Status EncodePieces(std::string_view text, bool at_start, WordCache* cache, std::vector<int32_t>* ids) const;
  // The token's text, null where there is none.
  std::string_view TokenOf(int32_t id) const {
    const AddedToken* token = added.Find(id);
    return token != nullptr ? std::string_view(token->content) : model.TokenOf(id);
  }
  // What decoding begins with; null where it leaves the id out.
  std::string_view Written(int32_t id, bool skip_special_tokens) const {
    const AddedToken* token = added.Find(id);
    if (token == nullptr) return model.TokenOf(id);
    return token->skipped && skip_special_tokens ? std::string_view() : std::string_view(token->written);
  }
  std::optional<int32_t> IdOf(std::string_view text) const {
    const AddedToken* token = added.Find(text);
    return token != nullptr ? token->id : model.IdOf(text);
  }

  Normalizer normalizer;
  PreTokenizer pre_tokenizer;
  BpeModel model;
  AddedTokens added;
  PostProcessor post_processor;
  Decoder decoder;
  SpecialTokens special;
  std::optional<int32_t> bos, eos, pad, unk;
  int32_t vocab_size = 0;
  mutable WordCachePool caches;
};

// From a text without added tokens of the first round.
absl::Status Tokenizer::Parts::EncodeText(std::string_view text, bool at_start, WordCache* cache,
                                          std::vector<int32_t>* ids) const {
  std::string buffer;
  if (!normalizer.empty()) {
    bool head_removed = false;
    MANTA_ASSIGN_OR_RETURN(text, normalizer.Apply(text, &buffer, &head_removed));
    at_start = at_start && !head_removed;
  }
  if (added.None(AddedTokens::Round::kNormalized)) return EncodePieces(text, at_start, cache, ids);
  std::vector<AddedTokens::Part> parts;
  added.Split(text, AddedTokens::Round::kNormalized, &parts);
  for (const AddedTokens::Part& part : parts) {
    if (part.id >= 0) {
      ids->push_back(part.id);
    } else {
      MANTA_RETURN_IF_ERROR(
          EncodePieces(text.substr(part.begin, part.end - part.begin), at_start && part.begin == 0, cache, ids));
    }
  }
  return absl::OkStatus();
}

// From a text without added tokens.
absl::Status Tokenizer::Parts::EncodePieces(std::string_view text, bool at_start, WordCache* cache,
                                            std::vector<int32_t>* ids) const {
  if (text.empty()) return absl::OkStatus();
  if (const ScanFunction scan = pre_tokenizer.scanner()) {
    const CharTable& chars = CharTable::Get();
    const char* const end = text.data() + text.size();
    for (const char* p = text.data(); p < end;) {
      const char* next = scan(chars, p, end);
      MANTA_RETURN_IF_ERROR(model.Encode(std::string_view(p, static_cast<size_t>(next - p)), cache, ids));
      p = next;
    }
    return absl::OkStatus();
  }
  PieceList list;
  MANTA_RETURN_IF_ERROR(pre_tokenizer.Apply({text, at_start}, &list));
  for (const Piece& piece : list.pieces) MANTA_RETURN_IF_ERROR(model.Encode(piece.text, cache, ids));
  return absl::OkStatus();
}

Tokenizer::Tokenizer(std::unique_ptr<const Parts> parts) : parts_(std::move(parts)) {}
Tokenizer::~Tokenizer() = default;

absl::StatusOr<std::shared_ptr<const Tokenizer>> Tokenizer::FromJson(std::string_view json, std::string_view name,
                                                                     SpecialTokens special_tokens) {
  simdjson::dom::parser parser;
  MANTA_ASSIGN_OR_RETURN(const JsonNode root, ParseJson(json, name, &parser));
  MANTA_ASSIGN_OR_RETURN(const JsonNode model_node, root.Need("model"));
  MANTA_ASSIGN_OR_RETURN(PreTokenizer pre_tokenizer, LoadOptional<PreTokenizer>(root, "pre_tokenizer"));
  MANTA_ASSIGN_OR_RETURN(BpeModel model, BpeModel::Load(model_node, pre_tokenizer.byte_level()));
  auto parts = std::make_unique<Parts>(std::move(model));
  parts->pre_tokenizer = std::move(pre_tokenizer);
  MANTA_ASSIGN_OR_RETURN(parts->normalizer, LoadOptional<Normalizer>(root, "normalizer"));
  if (const auto node = root.Find("added_tokens")) {
    MANTA_ASSIGN_OR_RETURN(parts->added, AddedTokens::Load(*node, parts->model, parts->normalizer));
  }
  MANTA_ASSIGN_OR_RETURN(parts->post_processor, LoadOptional<PostProcessor>(root, "post_processor"));
  MANTA_ASSIGN_OR_RETURN(parts->decoder, LoadOptional<Decoder>(root, "decoder"));
  parts->vocab_size = parts->model.size();
  for (const AddedToken& token : parts->added.tokens()) parts->vocab_size = std::max(parts->vocab_size, token.id + 1);
  parts->special = std::move(special_tokens);
  const auto id_of = [&](const std::optional<std::string>& text) {
    return text.has_value() ? parts->IdOf(*text) : std::nullopt;
  };
  parts->bos = id_of(parts->special.bos);
  parts->eos = id_of(parts->special.eos);
  parts->pad = id_of(parts->special.pad);
  parts->unk = id_of(parts->special.unk);
  return std::shared_ptr<const Tokenizer>(new Tokenizer(std::move(parts)));
}

absl::StatusOr<std::shared_ptr<const Tokenizer>> Tokenizer::Load(const std::filesystem::path& dir) {
  const std::filesystem::path path = dir / "tokenizer.json";
  MANTA_ASSIGN_OR_RETURN(const std::string json, ReadFile(path, kMaxFileBytes));
  MANTA_ASSIGN_OR_RETURN(SpecialTokens special_tokens, LoadSpecialTokens(dir));
  return FromJson(json, path.string(), std::move(special_tokens));
}

absl::StatusOr<std::vector<int32_t>> Tokenizer::Encode(std::string_view text, bool add_special_tokens) const {
  if (!IsUtf8(text)) {
    return UserError(StrCat("the text to encode is not UTF-8 at byte ", ValidUtf8Prefix(text)));
  }
  std::vector<int32_t> ids;
  ids.reserve(text.size() / 4 + 4);
  std::unique_ptr<WordCache> cache = parts_->caches.Take();
  std::vector<AddedTokens::Part> spans;
  parts_->added.Split(text, AddedTokens::Round::kAsGiven, &spans);
  absl::Status status;
  for (const AddedTokens::Part& span : spans) {
    if (span.id >= 0) {
      ids.push_back(span.id);
    } else {
      status = parts_->EncodeText(text.substr(span.begin, span.end - span.begin), span.begin == 0, cache.get(), &ids);
      if (!status.ok()) break;
    }
  }
  parts_->caches.Return(std::move(cache));
  MANTA_RETURN_IF_ERROR(status);
  if (add_special_tokens) parts_->post_processor.Apply(&ids);
  return ids;
}

std::string Tokenizer::Decode(absl::Span<const int32_t> ids, bool skip_special_tokens) const {
  const bool bytes_only = parts_->decoder.byte_level_only();
  std::string bytes;
  std::vector<std::string> tokens;
  for (const int32_t id : ids) {
    const std::string_view token = parts_->Written(id, skip_special_tokens);
    if (token.data() == nullptr) continue;
    if (bytes_only) {
      bytes += BytesOfToken(token);
    } else {
      tokens.emplace_back(token);
    }
  }
  if (!bytes_only) return parts_->decoder.Decode(std::move(tokens));
  std::string text;
  AppendLossyUtf8(bytes, &text);
  return text;
}

Tokenizer::Streaming Tokenizer::streaming() const {
  if (parts_->decoder.byte_level_only()) return Streaming::kBytes;
  return parts_->decoder.byte_fallback() ? Streaming::kByteFallback : Streaming::kOther;
}

bool Tokenizer::StreamBytes(int32_t id, bool skip_special_tokens, std::string* bytes) const {
  bytes->clear();
  const std::string_view token = parts_->Written(id, skip_special_tokens);
  if (token.data() == nullptr) return false;
  if (parts_->decoder.byte_level_only()) {
    *bytes = BytesOfToken(token);
  } else if (parts_->decoder.byte_fallback()) {
    if (const auto byte = ByteOfFallbackToken(token)) bytes->push_back(*byte);
  }
  return true;
}

std::optional<int32_t> Tokenizer::IdOf(std::string_view token) const {
  return parts_->IdOf(token);
}

std::optional<std::string> Tokenizer::TokenOf(int32_t id) const {
  const std::string_view token = parts_->TokenOf(id);
  return token.data() == nullptr ? std::nullopt : std::optional<std::string>(token);
}

bool Tokenizer::IsSpecial(int32_t id) const {
  const AddedToken* token = parts_->added.Find(id);
  return token != nullptr && token->special;
}

int32_t Tokenizer::vocab_size() const {
  return parts_->vocab_size;
}
const SpecialTokens& Tokenizer::special_tokens() const {
  return parts_->special;
}
std::optional<int32_t> Tokenizer::bos_id() const {
  return parts_->bos;
}
std::optional<int32_t> Tokenizer::eos_id() const {
  return parts_->eos;
}
std::optional<int32_t> Tokenizer::pad_id() const {
  return parts_->pad;
}
std::optional<int32_t> Tokenizer::unk_id() const {
  return parts_->unk;
}

}  // namespace manta::tokenizer
