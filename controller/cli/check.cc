#include "controller/cli/check.h"

#include <algorithm>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/config/device.h"
#include "controller/algorithms/checkpointer.h"
#include "controller/cli/child.h"
#include "controller/data/dataset.h"
#include "controller/data/prompts.h"
#include "controller/node/resources.h"

namespace manta::cli {
namespace {

namespace fs = std::filesystem;

// "configs/a.yaml:3: policy.model_name: ..."
absl::Status At(const config::Tree& tree, const char* key, const absl::Status& status) {
  return Annotate(status, absl::StrCat(tree.Where(key), ": ", key));
}

// Only where there is no doubt: the library may also lie where the system's linker looks.
bool LacksCudaSide() {
  std::error_code error;
  const fs::path bin = BinDir();
  return std::getenv("MANTA_CUDA_LIBRARY") == nullptr && std::getenv("LD_LIBRARY_PATH") == nullptr &&
         !fs::exists(bin / "libmanta_cuda.so", error) && !fs::exists(bin / ".." / "lib" / "libmanta_cuda.so", error);
}

absl::Status CheckDevice(const config::Tree& tree, const config::RunConfig& run) {
  const int num_gpus = run.cluster.device == config::DeviceChoice::kCpu ? 0 : static_cast<int>(node::FindGpus().size());
  MANTA_ASSIGN_OR_RETURN(const bool cuda, config::ChooseCuda(tree, run, num_gpus));
  if (!cuda || !LacksCudaSide()) return absl::OkStatus();
  return tree.Error("cluster.device", "there is a GPU, but this build has no CUDA side (libmanta_cuda.so); expected cpu");
}

// What of the model the run asks for.
absl::Status CheckLengths(const config::Tree& tree, const config::RunConfig& run, const model::ModelConfig& model) {
  if (run.algorithm == config::Algorithm::kSft) return absl::OkStatus();
  if (run.policy.generation.max_model_len <= model.max_position_embeddings) return absl::OkStatus();
  const bool eval = run.algorithm == config::Algorithm::kEval;
  const char* own = eval ? "generation.vllm_cfg.max_model_len" : "policy.generation.vllm_cfg.max_model_len";
  return tree.Error(eval || tree.IsWritten(own) ? own : "policy.max_total_sequence_length",
                    absl::StrCat(run.policy.generation.max_model_len, " is more than the model's max_position_embeddings, ",
                                 model.max_position_embeddings));
}

absl::Status CheckResume(const config::Tree& tree, const config::RunConfig& run, const model::ModelConfig& model) {
  if (!run.checkpointing.enabled) return absl::OkStatus();
  constexpr char kKey[] = "checkpointing.checkpoint_dir";
  const auto newest = controller::Checkpointer::Newest(run.checkpointing.checkpoint_dir);
  if (!newest.ok()) return At(tree, kKey, newest.status());
  if (!newest->has_value()) return absl::OkStatus();
  const absl::Status status = CheckCheckpoint((*newest)->path / "policy", model);
  return status.ok() ? status : At(tree, kKey, status);
}

absl::Status CheckDatasets(const config::Tree& tree, const config::RunConfig& run, const controller::PromptBuilder& builder) {
  MANTA_ASSIGN_OR_RETURN(const auto sets, controller::LoadTrainAndValidation(run.data, run.seed()));
  if (run.algorithm != config::Algorithm::kEval) {
    const auto [needed, key] = controller::RowsOfAStep(run);
    if (absl::Status status = controller::RequireRows(sets.first, needed, key); !status.ok()) {
      return Annotate(status, tree.Where(key));
    }
  }
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

}  // namespace

absl::Status CheckRun(const config::Tree& tree, const config::RunConfig& run) {
  if (run.algorithm == config::Algorithm::kActors) return absl::OkStatus();  // loading has looked for the programs
  const bool eval = run.algorithm == config::Algorithm::kEval;
  const char* model_key = eval ? "generation.model_name" : "policy.model_name";
  const char* tokenizer_key = eval ? "tokenizer.name" : "policy.tokenizer.name";
  const fs::path model_dir = run.policy.model_name;
  if (absl::Status status = CheckFolder(model_dir); !status.ok()) {
    return At(tree, model_key,
              UserError(absl::StrCat(std::string(status.message()), "; expected a model's folder on this machine, with config.json")));
  }
  MANTA_RETURN_IF_ERROR(CheckDevice(tree, run));
  MANTA_ASSIGN_OR_RETURN(const model::ModelConfig model,
                         CheckModel(model_dir, !run.policy.random_init, run.policy.hf_config_overrides_json));
  MANTA_RETURN_IF_ERROR(CheckLengths(tree, run, model));
  if (absl::Status status = CheckFolder(run.policy.tokenizer.name); !status.ok()) return At(tree, tokenizer_key, status);
  MANTA_ASSIGN_OR_RETURN(const controller::PromptBuilder builder, controller::PromptBuilder::Load(run));
  if (builder.tokenizer()->vocab_size() > model.vocab_size) {
    return At(tree, tokenizer_key,
              UserError(absl::StrCat("the tokenizer has ", builder.tokenizer()->vocab_size(), " ids, the model's vocab_size is only ",
                                     model.vocab_size)));
  }
  MANTA_RETURN_IF_ERROR(CheckDatasets(tree, run, builder));
  MANTA_RETURN_IF_ERROR(CheckResume(tree, run, model));
  if (run.algorithm != config::Algorithm::kSft) MANTA_RETURN_IF_ERROR(CheckEnvironments(tree, run));
  return absl::OkStatus();
}

}  // namespace manta::cli
