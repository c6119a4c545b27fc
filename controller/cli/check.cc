#include "controller/cli/check.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/file.h"
#include "common/base/status.h"
#include "common/checkpoint/reader.h"
#include "common/model/config.h"
#include "common/model/parameter_table.h"
#include "controller/data/dataset.h"
#include "controller/data/prompts.h"

namespace manta::cli {
namespace {

namespace fs = std::filesystem;

absl::StatusOr<model::ModelConfig> ReadModelConfig(const fs::path& dir, const std::string& overrides_json) {
  const nlohmann::ordered_json overrides = nlohmann::ordered_json::parse(overrides_json, nullptr, false);
  if (!overrides.is_object() || overrides.empty()) return model::LoadModelConfig(dir);
  MANTA_ASSIGN_OR_RETURN(const std::string text, ReadFile(dir / "config.json", uint64_t{16} << 20));
  nlohmann::ordered_json json = nlohmann::ordered_json::parse(text, nullptr, false);
  if (!json.is_object()) return model::LoadModelConfig(dir);  // says what is wrong
  json.merge_patch(overrides);
  return model::ParseModelConfig(json.dump(), (dir / "config.json").string());
}

absl::Status CheckWeights(const fs::path& dir, const model::ModelConfig& config) {
  MANTA_ASSIGN_OR_RETURN(const checkpoint::Checkpoint checkpoint, checkpoint::Checkpoint::Open(dir));
  for (const model::ParameterSpec& parameter : model::ParameterTable(config)) {
    const checkpoint::TensorView* tensor = checkpoint.Find(parameter.name);
    // A tied embedding may be stored under either of its names.
    if (tensor == nullptr && config.tie_word_embeddings && parameter.name == "model.embed_tokens.weight") {
      tensor = checkpoint.Find("lm_head.weight");
    }
    if (tensor == nullptr) {
      return UserError(absl::StrCat(checkpoint.path().string(), ": lacks the tensor ", parameter.name, " ",
                                    checkpoint::ShapeText(parameter.shape)));
    }
    if (tensor->info->shape != parameter.shape) {
      return UserError(absl::StrCat(std::string(tensor->file), ": tensor ", tensor->info->name, " has shape ",
                                    checkpoint::ShapeText(tensor->info->shape), ", expected ",
                                    checkpoint::ShapeText(parameter.shape), " from config.json"));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckModelDir(const fs::path& dir) {
  std::error_code error;
  if (!fs::exists(dir, error)) return UserError(absl::StrCat("there is no folder '", dir.string(), "'"));
  if (!fs::is_directory(dir, error)) return UserError(absl::StrCat("'", dir.string(), "' is not a folder"));
  return absl::OkStatus();
}

// "configs/a.yaml:3: policy.model_name: ..."
absl::Status At(const config::Tree& tree, const char* key, const absl::Status& status) {
  return Annotate(status, absl::StrCat(tree.Where(key), ": ", key));
}

}  // namespace

absl::Status CheckModel(const fs::path& dir, bool weights, const std::string& hf_config_overrides_json) {
  MANTA_RETURN_IF_ERROR(CheckModelDir(dir));
  MANTA_ASSIGN_OR_RETURN(const model::ModelConfig config, ReadModelConfig(dir, hf_config_overrides_json));
  if (weights) MANTA_RETURN_IF_ERROR(CheckWeights(dir, config));
  return absl::OkStatus();
}

absl::Status CheckRun(const config::Tree& tree, const config::RunConfig& run) {
  const bool eval = run.algorithm == config::Algorithm::kEval;
  const char* model_key = eval ? "generation.model_name" : "policy.model_name";
  const char* tokenizer_key = eval ? "tokenizer.name" : "policy.tokenizer.name";
  const fs::path model_dir = run.policy.model_name;
  if (absl::Status status = CheckModelDir(model_dir); !status.ok()) {
    return At(tree, model_key,
              UserError(absl::StrCat(std::string(status.message()), "; expected a model's folder on this machine, with config.json")));
  }
  MANTA_RETURN_IF_ERROR(CheckModel(model_dir, !run.policy.random_init, run.policy.hf_config_overrides_json));
  if (absl::Status status = CheckModelDir(run.policy.tokenizer.name); !status.ok()) return At(tree, tokenizer_key, status);
  MANTA_ASSIGN_OR_RETURN(const controller::PromptBuilder builder, controller::PromptBuilder::Load(run));
  MANTA_ASSIGN_OR_RETURN(const model::ModelConfig model, ReadModelConfig(model_dir, run.policy.hf_config_overrides_json));
  if (builder.tokenizer()->vocab_size() > model.vocab_size) {
    return At(tree, tokenizer_key,
              UserError(absl::StrCat("the tokenizer has ", builder.tokenizer()->vocab_size(), " ids, the model's vocab_size is only ",
                                     model.vocab_size)));
  }
  MANTA_ASSIGN_OR_RETURN(const auto sets, controller::LoadTrainAndValidation(run.data, run.seed()));
  if (sets.first.rows.empty()) return UserError(absl::StrCat(sets.first.path, ": the training set is empty"));
  for (const controller::Dataset* set : {&sets.first, &sets.second}) {
    if (set->rows.empty()) continue;
    if (run.algorithm == config::Algorithm::kSft) {
      MANTA_RETURN_IF_ERROR(builder.Example(*set, 0).status());
    } else {
      MANTA_RETURN_IF_ERROR(builder.Prompt(*set, 0).status());
    }
  }
  return absl::OkStatus();
}

}  // namespace manta::cli
