// Reading a BPE model from tokenizer.json. The vocabulary and the merges have hundreds of thousands of entries, so they
// are read without a JsonNode each.
#include <utility>

#include "absl/strings/str_format.h"
#include "common/base/status.h"
#include "common/base/strings.h"
#include "common/tokenizer/bpe_model.h"
#include "common/tokenizer/byte_alphabet.h"
#include "common/tokenizer/unicode.h"

namespace manta::tokenizer {

class BpeLoader {
 public:
  BpeLoader(const JsonNode& node, bool byte_level) : node_(node) { model_.byte_level_ = byte_level; }

  absl::StatusOr<BpeModel> Run() {
    MANTA_RETURN_IF_ERROR(CheckType());
    MANTA_RETURN_IF_ERROR(ReadSettings());
    MANTA_ASSIGN_OR_RETURN(const JsonNode vocab, node_.Need("vocab"));
    MANTA_RETURN_IF_ERROR(ReadVocab(vocab));
    MANTA_ASSIGN_OR_RETURN(const JsonNode merges, node_.Need("merges"));
    MANTA_RETURN_IF_ERROR(ReadMerges(merges));
    FillFirstIds();
    if (model_.byte_level_ && model_.ignore_merges_) FillByteVocab();
    return std::move(model_);
  }

 private:
  // Old files have no "type": a BPE model is known by its merges.
  absl::Status CheckType() {
    MANTA_RETURN_IF_ERROR(node_.CheckObject());
    MANTA_ASSIGN_OR_RETURN(const std::string type, node_.StringOr("type", "BPE"));
    if (type == "BPE") return absl::OkStatus();
    return node_.Error(StrCat("models of type ", type, " are not supported; BPE is"));
  }

  absl::Status ReadSettings() {
    MANTA_ASSIGN_OR_RETURN(model_.ignore_merges_, node_.BoolOr("ignore_merges", false));
    MANTA_ASSIGN_OR_RETURN(model_.fuse_unk_, node_.BoolOr("fuse_unk", false));
    MANTA_ASSIGN_OR_RETURN(model_.byte_fallback_, node_.BoolOr("byte_fallback", false));
    MANTA_ASSIGN_OR_RETURN(model_.prefix_, node_.StringOr("continuing_subword_prefix", ""));
    MANTA_ASSIGN_OR_RETURN(model_.suffix_, node_.StringOr("end_of_word_suffix", ""));
    if (const auto unk = node_.Find("unk_token")) {
      MANTA_ASSIGN_OR_RETURN(model_.unk_token_, unk->AsString());
    }
    if (const auto dropout = node_.Find("dropout")) {
      double value = 0;
      if (dropout->value().get(value) != simdjson::SUCCESS || value != 0) {
        return dropout->Error("dropout is not supported: encoding would be random");
      }
    }
    return absl::OkStatus();
  }

  absl::Status ReadVocab(const JsonNode& node) {
    simdjson::dom::object object;
    if (node.value().get(object) != simdjson::SUCCESS) return node.CheckObject();
    size_t bytes = 0, count = 0;
    int64_t greatest = -1;
    for (const auto field : object) {
      int64_t id = -1;
      if (!field.value.is_int64() || field.value.get(id) != simdjson::SUCCESS || id < 0 || id > BpeModel::kMaxId) {
        return node.Error(StrCat("the id of \"", field.key, "\" is not a whole number from 0 to ", BpeModel::kMaxId));
      }
      bytes += field.key.size();
      ++count;
      greatest = std::max(greatest, id);
    }
    if (count == 0) return node.Error("is empty");
    model_.texts_ = std::make_unique<std::string>();
    model_.texts_->reserve(bytes);  // views into it must stay
    model_.tokens_.resize(static_cast<size_t>(greatest + 1));
    model_.vocab_.reserve(count);
    for (const auto field : object) {
      const int64_t id = field.value.get_int64().value_unsafe();  // checked above
      const size_t begin = model_.texts_->size();
      model_.texts_->append(field.key);
      const std::string_view text(model_.texts_->data() + begin, field.key.size());
      if (!model_.vocab_.emplace(text, static_cast<int32_t>(id)).second) {
        return node.Error(StrCat("\"", text, "\" appears twice"));
      }
      std::string_view& token = model_.tokens_[static_cast<size_t>(id)];
      if (token.data() != nullptr) {
        return node.Error(StrCat("\"", token, "\" and \"", text, "\" have the same id, ", id));
      }
      token = text;
    }
    return absl::OkStatus();
  }

  // A merge is "a b" or ["a", "b"].
  absl::Status SplitMerge(const JsonNode& node, size_t index, const simdjson::dom::element& element,
                          std::string_view* left, std::string_view* right) {
    if (std::string_view line; element.get(line) == simdjson::SUCCESS) {
      const size_t space = line.find(' ');
      if (space != line.npos && line.find(' ', space + 1) == line.npos) {
        *left = line.substr(0, space);
        *right = line.substr(space + 1);
        return absl::OkStatus();
      }
    }
    if (simdjson::dom::array pair; element.get(pair) == simdjson::SUCCESS && pair.size() == 2) {
      if (pair.at(0).get(*left) == simdjson::SUCCESS && pair.at(1).get(*right) == simdjson::SUCCESS) {
        return absl::OkStatus();
      }
    }
    return UserError(StrCat(node.where(), "[", index, "]: expected \"left right\" or [\"left\", \"right\"]"));
  }

  absl::Status ReadMerges(const JsonNode& node) {
    simdjson::dom::array array;
    if (node.value().get(array) != simdjson::SUCCESS) return node.AsList().status();
    size_t count = 0;
    for (const auto element : array) {
      (void)element;
      ++count;
    }
    model_.merges_.Reserve(count);
    uint32_t rank = 0;
    size_t index = 0;
    std::string whole;
    for (const auto element : array) {
      const size_t at = index++;
      if (std::string_view line; element.get(line) == simdjson::SUCCESS && line.starts_with("#version")) continue;
      std::string_view left, right;
      MANTA_RETURN_IF_ERROR(SplitMerge(node, at, element, &left, &right));
      whole.assign(left);
      whole.append(right.substr(std::min(right.size(), model_.prefix_.size())));
      int32_t ids[3];
      int i = 0;
      for (const std::string_view token : {left, right, std::string_view(whole)}) {
        const auto id = model_.IdOf(token);
        if (!id.has_value()) {
          return UserError(StrCat(node.where(), "[", at, "]: \"", token, "\" is not in the vocabulary"));
        }
        ids[i++] = *id;
      }
      model_.merges_.Add(ids[0], ids[1], {rank++, ids[2]});
    }
    return absl::OkStatus();
  }

  void FillFirstIds() {
    const auto id_of = [this](std::string_view text) { return model_.IdOf(text).value_or(BpeModel::kNone); };
    bool all = true;
    for (size_t byte = 0; byte < 256; ++byte) {
      model_.fallback_ids_[byte] = id_of(absl::StrFormat("<0x%02X>", byte));
      if (model_.byte_level_) {
        model_.first_ids_[byte] = id_of(ByteAlphabet()[byte]);
      } else {
        const char text = static_cast<char>(byte);
        model_.first_ids_[byte] = byte < 0x80 ? id_of(std::string_view(&text, 1)) : BpeModel::kNone;
      }
      // These bytes appear in no UTF-8.
      const bool needed = byte != 0xC0 && byte != 0xC1 && byte < 0xF5;
      all = all && (!needed || model_.first_ids_[byte] != BpeModel::kNone);
    }
    model_.whole_alphabet_ = model_.byte_level_ && all && model_.prefix_.empty() && model_.suffix_.empty();
    if (model_.unk_token_.has_value()) model_.unk_id_ = id_of(*model_.unk_token_);
  }

  void FillByteVocab() {
    model_.byte_texts_ = std::make_unique<std::string>();
    model_.byte_texts_->reserve(model_.texts_->size());
    for (size_t id = 0; id < model_.tokens_.size(); ++id) {
      const auto bytes = BytesOfAlphabet(model_.tokens_[id]);
      if (!bytes.has_value() || bytes->empty()) continue;  // no piece is ever equal to it
      const size_t begin = model_.byte_texts_->size();
      model_.byte_texts_->append(*bytes);
      model_.byte_vocab_.emplace(std::string_view(model_.byte_texts_->data() + begin, bytes->size()),
                                 static_cast<int32_t>(id));
    }
  }

  const JsonNode& node_;
  BpeModel model_;
};

absl::StatusOr<BpeModel> BpeModel::Load(const JsonNode& node, bool byte_level) {
  return BpeLoader(node, byte_level).Run();
}

}  // namespace manta::tokenizer
