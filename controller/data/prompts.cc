#include "controller/data/prompts.h"

#include <algorithm>
#include <filesystem>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/file.h"
#include "common/base/status.h"

namespace manta::controller {
namespace {

using Json = nlohmann::ordered_json;

// Tokens that stand for a conversation that is too long: a few are kept so that the row still has its place in a batch.
constexpr size_t kStubTokens = 4;

std::string Where(const Dataset& dataset, int64_t row) {
  return absl::StrCat(dataset.path, ":", dataset.rows[row].line);
}

size_t CommonPrefix(std::string_view a, std::string_view b) {
  return static_cast<size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin());
}

// policy.tokenizer.chat_template is Jinja text, or the path of a file that has it.
absl::StatusOr<chat_template::ModelChatTemplate> LoadTemplate(const config::TokenizerConfig& config,
                                                              const tokenizer::Tokenizer& tokenizer) {
  if (!config.chat_template) return chat_template::LoadChatTemplate(config.name);
  std::string source = *config.chat_template, name = "policy.tokenizer.chat_template";
  if (std::error_code error; source.size() < 4096 && std::filesystem::is_regular_file(source, error)) {
    name = source;
    MANTA_ASSIGN_OR_RETURN(source, ReadFile(name, 1 << 20));
  }
  MANTA_ASSIGN_OR_RETURN(chat_template::ChatTemplate chat, chat_template::ChatTemplate::Parse(source, name));
  chat_template::ModelChatTemplate model{.chat = std::move(chat)};
  for (const auto& [token_name, text] : tokenizer.special_tokens().Named()) model.special_tokens[token_name] = text;
  return model;
}

}  // namespace

absl::StatusOr<PromptBuilder> PromptBuilder::Load(const config::RunConfig& config) {
  const config::TokenizerConfig& tokenizer_config = config.policy.tokenizer;
  MANTA_ASSIGN_OR_RETURN(auto tokenizer, tokenizer::Tokenizer::Load(tokenizer_config.name));
  MANTA_ASSIGN_OR_RETURN(chat_template::ModelChatTemplate chat, LoadTemplate(tokenizer_config, *tokenizer));
  PromptBuilder builder(std::move(chat));
  builder.tokenizer_ = std::move(tokenizer);
  builder.kwargs_ = Json::parse(tokenizer_config.chat_template_kwargs_json, nullptr, /*allow_exceptions=*/false);
  if (builder.kwargs_.is_discarded()) return UserError("policy.tokenizer.chat_template_kwargs: not a JSON object");
  // A conversation has to fit into a sequence, a prompt to leave room for a token of its answer.
  const bool sft = config.algorithm == config::Algorithm::kSft;
  const int64_t longest = std::min(config.policy.max_total_sequence_length,
                                   sft ? config.policy.max_total_sequence_length : config.policy.generation.max_model_len);
  builder.max_input_ = std::min(config.data.max_input_seq_length, sft ? longest : longest - 1);
  builder.add_bos_ = config.data.add_bos;
  builder.add_eos_ = config.data.add_eos;
  builder.add_generation_prompt_ = config.data.add_generation_prompt;
  builder.only_unmask_final_ = config.sft.only_unmask_final;
  return builder;
}

absl::StatusOr<std::string> PromptBuilder::Render(const Json& messages, const Json& tools,
                                                  bool add_generation_prompt) const {
  MANTA_ASSIGN_OR_RETURN(chat_template::Rendered rendered,
                         template_.Render({.messages = messages,
                                           .tools = tools,
                                           .add_generation_prompt = add_generation_prompt,
                                           .kwargs = kwargs_}));
  return std::move(rendered.text);
}

absl::StatusOr<std::optional<RolloutPrompt>> PromptBuilder::Prompt(const Dataset& dataset, int64_t index) const {
  const DatasetRow& row = dataset.rows[index];
  RolloutPrompt prompt{.row = index,
                       .ground_truth = row.ground_truth,
                       .env_name = dataset.env_name,
                       .metadata_json = row.metadata_json};
  absl::StatusOr<std::string> text = Render(row.messages, row.tools, /*add_generation_prompt=*/true);
  if (!text.ok()) return Annotate(text.status(), Where(dataset, index));
  prompt.text = *std::move(text);
  absl::StatusOr<std::vector<int32_t>> tokens = tokenizer_->Encode(prompt.text, /*add_special_tokens=*/false);
  if (!tokens.ok()) return Annotate(tokens.status(), Where(dataset, index));
  prompt.tokens = *std::move(tokens);
  if (prompt.tokens.empty()) return UserError(absl::StrCat(Where(dataset, index), ": the prompt has no tokens"));
  if (static_cast<int64_t>(prompt.tokens.size()) > max_input_) return std::nullopt;
  return prompt;
}

absl::StatusOr<SftExample> PromptBuilder::Example(const Dataset& dataset, int64_t index) const {
  const DatasetRow& row = dataset.rows[index];
  const auto& special = tokenizer_->special_tokens();
  SftExample example;
  Json prefix = Json::array();
  std::string before;
  int64_t last_assistant = -1;
  for (size_t i = 0; i < row.messages.size(); ++i) {
    if (row.messages[i]["role"] == "assistant") last_assistant = static_cast<int64_t>(i);
  }
  for (size_t i = 0; i < row.messages.size(); ++i) {
    const std::string role = row.messages[i]["role"].get<std::string>();
    prefix.push_back(row.messages[i]);
    const bool prompts = role == "user" || role == "tool";
    absl::StatusOr<std::string> rendered = Render(prefix, row.tools, add_generation_prompt_ && prompts);
    if (!rendered.ok()) return Annotate(rendered.status(), absl::StrCat(Where(dataset, index), ": message ", i));
    std::string chunk = rendered->substr(CommonPrefix(before, *rendered));
    before = *std::move(rendered);
    if (i == 0 && add_bos_ && special.bos && !absl::StartsWith(chunk, *special.bos)) chunk = *special.bos + chunk;
    if (i + 1 == row.messages.size() && add_eos_ && special.eos) {
      while (!chunk.empty() && chunk.back() == '\n') chunk.pop_back();
      if (!absl::EndsWith(chunk, *special.eos)) chunk += *special.eos;
    }
    absl::StatusOr<std::vector<int32_t>> tokens = tokenizer_->Encode(chunk, /*add_special_tokens=*/false);
    if (!tokens.ok()) return Annotate(tokens.status(), absl::StrCat(Where(dataset, index), ": message ", i));
    const bool counts = role == "assistant" && (!only_unmask_final_ || static_cast<int64_t>(i) == last_assistant);
    example.tokens.insert(example.tokens.end(), tokens->begin(), tokens->end());
    example.token_mask.resize(example.tokens.size(), counts ? 1.0f : 0.0f);
  }
  if (example.tokens.empty()) return UserError(absl::StrCat(Where(dataset, index), ": the conversation has no tokens"));
  if (static_cast<int64_t>(example.tokens.size()) > max_input_) {
    example.tokens.resize(std::min(example.tokens.size(), kStubTokens));
    example.token_mask.assign(example.tokens.size(), 0.0f);
    example.sample_mask = 0;
  }
  return example;
}

}  // namespace manta::controller
