// Models and checkpoints as far as their files' headers tell.
#include "absl/strings/str_cat.h"
#include "common/base/file.h"
#include "common/base/status.h"
#include "common/checkpoint/reader.h"
#include "common/model/config_overrides.h"
#include "common/model/generation_config.h"
#include "common/model/parameter_table.h"
#include "controller/cli/check.h"

namespace manta::cli {
namespace {

namespace fs = std::filesystem;

bool IsFloat(checkpoint::DType dtype) {
  using checkpoint::DType;
  return dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kF16 || dtype == DType::kF64;
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
    const std::string name = absl::StrCat(std::string(tensor->file), ": tensor ", tensor->info->name);
    if (tensor->info->shape != parameter.shape) {
      return UserError(absl::StrCat(name, " has shape ", checkpoint::ShapeText(tensor->info->shape), ", expected ",
                                    checkpoint::ShapeText(parameter.shape), " from config.json"));
    }
    if (!IsFloat(tensor->info->dtype)) {
      return UserError(absl::StrCat(name, " is ", std::string(checkpoint::DTypeName(tensor->info->dtype)),
                                    ", expected F32, BF16, F16 or F64"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckFolder(const fs::path& dir) {
  std::error_code error;
  if (!fs::exists(dir, error)) return UserError(absl::StrCat("there is no folder '", dir.string(), "'"));
  if (!fs::is_directory(dir, error)) return UserError(absl::StrCat("'", dir.string(), "' is not a folder"));
  return absl::OkStatus();
}

absl::StatusOr<model::ModelConfig> CheckModel(const fs::path& dir, bool weights, const std::string& hf_config_overrides_json) {
  MANTA_RETURN_IF_ERROR(CheckFolder(dir));
  MANTA_ASSIGN_OR_RETURN(model::ModelConfig config, model::LoadModelConfigWith(dir, hf_config_overrides_json));
  if (weights) MANTA_RETURN_IF_ERROR(CheckWeights(dir, config));
  MANTA_RETURN_IF_ERROR(model::ReadEosIds(dir, config.eos_token_ids).status());
  return config;
}

absl::Status CheckCheckpoint(const fs::path& policy, const model::ModelConfig& config) {
  const fs::path path = policy / "optimizer" / "trainer_state.json";
  MANTA_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, 1 << 20));
  const auto state = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!state.is_object() || !state.contains("optimizer") || !state["optimizer"].is_boolean()) {
    return UserError(absl::StrCat(path.string(), ": expected an object with a boolean \"optimizer\""));
  }
  if (state["optimizer"].get<bool>()) return CheckWeights(policy / "weights", config);
  return UserError(absl::StrCat(policy.parent_path().string(),
                                " was saved without its optimiser's state (checkpointing.save_optimizer: false): a run "
                                "cannot go on from it; expected another folder for a new run"));
}

}  // namespace manta::cli
