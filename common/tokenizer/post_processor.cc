#include "common/tokenizer/post_processor.h"

#include "common/base/status.h"
#include "common/base/strings.h"
#include "common/tokenizer/bpe_model.h"

namespace manta::tokenizer {
namespace {

// Bert's and Roberta's name a token as ["<s>", 0].
absl::StatusOr<int32_t> LoadNamedId(const JsonNode& node, std::string_view key) {
  MANTA_ASSIGN_OR_RETURN(const JsonNode pair_node, node.Need(key));
  MANTA_ASSIGN_OR_RETURN(const std::vector<JsonNode> pair, pair_node.AsList());
  if (pair.size() != 2) return pair_node.Error("expected [token, id]");
  MANTA_ASSIGN_OR_RETURN(const int64_t id, pair[1].AsInt(0, BpeModel::kMaxId));
  return static_cast<int32_t>(id);
}

}  // namespace

absl::Status PostProcessor::AddTemplate(const JsonNode& node) {
  Template ids;
  MANTA_ASSIGN_OR_RETURN(const JsonNode single, node.Need("single"));
  MANTA_ASSIGN_OR_RETURN(const std::vector<JsonNode> items, single.AsList());
  for (const JsonNode& item : items) {
    MANTA_RETURN_IF_ERROR(item.CheckObject());
    if (const auto sequence = item.Find("Sequence")) {
      MANTA_ASSIGN_OR_RETURN(const JsonNode id_node, sequence->Need("id"));
      MANTA_ASSIGN_OR_RETURN(const std::string id, id_node.AsString());
      if (id != "A") return id_node.Error(StrCat("a single sequence is A, found ", id));
      ids.push_back(kSequence);
      continue;
    }
    MANTA_ASSIGN_OR_RETURN(const JsonNode special, item.Need("SpecialToken"));
    MANTA_ASSIGN_OR_RETURN(const JsonNode name_node, special.Need("id"));
    MANTA_ASSIGN_OR_RETURN(const std::string name, name_node.AsString());
    MANTA_ASSIGN_OR_RETURN(const JsonNode known, node.Need("special_tokens"));
    MANTA_RETURN_IF_ERROR(known.CheckObject());
    const auto token = known.Find(name);
    if (!token.has_value()) return known.Error(StrCat("\"", name, "\", which the template uses, is missing"));
    MANTA_ASSIGN_OR_RETURN(const JsonNode ids_node, token->Need("ids"));
    MANTA_ASSIGN_OR_RETURN(const std::vector<JsonNode> list, ids_node.AsList());
    for (const JsonNode& element : list) {
      MANTA_ASSIGN_OR_RETURN(const int64_t id, element.AsInt(0, BpeModel::kMaxId));
      ids.push_back(static_cast<int32_t>(id));
    }
  }
  templates_.push_back(std::move(ids));
  return absl::OkStatus();
}

absl::Status PostProcessor::Add(const JsonNode& node) {
  MANTA_ASSIGN_OR_RETURN(const std::string type, node.Type());
  if (type == "Sequence") {
    MANTA_ASSIGN_OR_RETURN(const JsonNode list, node.Need("processors"));
    MANTA_ASSIGN_OR_RETURN(const std::vector<JsonNode> parts, list.AsList());
    for (const JsonNode& part : parts) MANTA_RETURN_IF_ERROR(Add(part));
    return absl::OkStatus();
  }
  if (type == "ByteLevel") return absl::OkStatus();
  if (type == "TemplateProcessing") return AddTemplate(node);
  if (type == "BertProcessing" || type == "RobertaProcessing") {
    MANTA_ASSIGN_OR_RETURN(const int32_t cls, LoadNamedId(node, "cls"));
    MANTA_ASSIGN_OR_RETURN(const int32_t sep, LoadNamedId(node, "sep"));
    templates_.push_back({cls, kSequence, sep});
    return absl::OkStatus();
  }
  return node.Error(StrCat("the post-processor ", type, " is not supported"));
}

absl::StatusOr<PostProcessor> PostProcessor::Load(const JsonNode& node) {
  PostProcessor processor;
  MANTA_RETURN_IF_ERROR(processor.Add(node));
  return processor;
}

void PostProcessor::Apply(std::vector<int32_t>* ids) const {
  for (const Template& items : templates_) {
    std::vector<int32_t> whole;
    whole.reserve(ids->size() + items.size());
    for (const int32_t item : items) {
      if (item == kSequence) {
        whole.insert(whole.end(), ids->begin(), ids->end());
      } else {
        whole.push_back(item);
      }
    }
    ids->swap(whole);
  }
}

}  // namespace manta::tokenizer
