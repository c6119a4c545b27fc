// From rows to token ids: the prompt that a rollout starts from, the masked conversation that SFT trains on.
//
// PromptBuilder holds the tokenizer and the chat template; const and thread-safe after construction.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/config/run_config.h"
#include "common/template/chat_template.h"
#include "common/tokenizer/tokenizer.h"
#include "controller/data/dataset.h"
#include "controller/rollout/sample.h"

namespace manta::controller {

// One prompt to be sampled from.
struct RolloutPrompt {
  int64_t row = 0;  // of the dataset
  std::vector<int32_t> tokens;
  std::string text;  // as rendered
  std::string ground_truth;
  std::string env_name;
  std::string metadata_json;
};

// One conversation to be trained on.
struct SftExample {
  std::vector<int32_t> tokens;    // [length]
  std::vector<float> token_mask;  // [length] 1 for what an assistant said
  float sample_mask = 1;          // 0: longer than max_input_seq_length; cut to a stub that counts nowhere
};

class PromptBuilder {
 public:
  // The tokenizer's folder is policy.tokenizer.name; the template its own, or policy.tokenizer.chat_template.
  [[nodiscard]] static absl::StatusOr<PromptBuilder> Load(const config::RunConfig& config);

  // Empty where the prompt is longer than data.max_input_seq_length, or leaves no room for an answer. Errors name the dataset's file and line.
  [[nodiscard]] absl::StatusOr<std::optional<RolloutPrompt>> Prompt(const Dataset& dataset, int64_t row) const;

  // Messages are rendered prefix by prefix; what each adds is encoded by itself, and counts where an assistant said it
  // (with sft.only_unmask_final: only the last). data.add_bos, .add_eos and .add_generation_prompt as in NeMo RL.
  [[nodiscard]] absl::StatusOr<SftExample> Example(const Dataset& dataset, int64_t row) const;

  const std::shared_ptr<const tokenizer::Tokenizer>& tokenizer() const { return tokenizer_; }

 private:
  explicit PromptBuilder(chat_template::ModelChatTemplate chat) : template_(std::move(chat)) {}
  absl::StatusOr<std::string> Render(const nlohmann::ordered_json& messages, const nlohmann::ordered_json& tools,
                                     bool add_generation_prompt) const;

  std::shared_ptr<const tokenizer::Tokenizer> tokenizer_;
  chat_template::ModelChatTemplate template_;
  nlohmann::ordered_json kwargs_;
  int64_t max_input_ = 0;
  bool add_bos_ = true, add_eos_ = true, add_generation_prompt_ = false, only_unmask_final_ = false;
};

}  // namespace manta::controller
