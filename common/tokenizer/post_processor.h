// PostProcessor: the special tokens that tokenizer.json's "post_processor" puts around a single sequence. Const and
// thread-safe after loading.
//
// Known: TemplateProcessing, BertProcessing, RobertaProcessing, ByteLevel (which moves offsets only), Sequence. Others
// are refused.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/tokenizer/json_node.h"

namespace manta::tokenizer {

class PostProcessor {
 public:
  // Leaves ids as they are.
  PostProcessor() = default;
  static absl::StatusOr<PostProcessor> Load(const JsonNode& node);

  void Apply(std::vector<int32_t>* ids) const;

 private:
  // What a template is made of: an id, or the sequence.
  static constexpr int32_t kSequence = -1;
  using Template = std::vector<int32_t>;

  absl::Status Add(const JsonNode& node);
  absl::Status AddTemplate(const JsonNode& node);

  std::vector<Template> templates_;  // applied one after another
};

}  // namespace manta::tokenizer
