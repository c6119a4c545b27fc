#include "worker_train/engine/train_checkpoint.h"

#include <cstring>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/file.h"
#include "common/base/status.h"
#include "common/checkpoint/reader.h"
#include "common/checkpoint/writer.h"
#include "common/model/catch_aten.h"
#include "nlohmann/json.hpp"

namespace manta::train {
namespace {

namespace fs = std::filesystem;

constexpr const char* kTokenizerFiles[] = {
    "tokenizer.json",      "tokenizer_config.json",
    "chat_template.jinja", "special_tokens_map.json",
    "added_tokens.json",   "vocab.json",
    "merges.txt",          "tokenizer.model",
};

absl::Status MakeFolder(const fs::path& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error) return ErrnoError("cannot make the folder", path, error.value());
  return absl::OkStatus();
}

absl::Status CopyIfThere(const fs::path& from, const fs::path& to) {
  std::error_code error;
  if (from.empty() || !fs::exists(from, error)) return absl::OkStatus();
  if (fs::equivalent(from, to, error)) return absl::OkStatus();
  MANTA_ASSIGN_OR_RETURN(const std::string content, ReadFile(from));
  return WriteFileAtomically(to, content);
}

std::string Entry(const model::ParameterSpec& spec, const std::string& kind) {
  return spec.name + "." + kind;
}

}  // namespace

absl::Status SaveWeights(const model::Parameters& parameters, const fs::path& policy, const fs::path& model_path,
                         const fs::path& tokenizer_path) {
  const fs::path weights = policy / "weights", tokenizer = policy / "tokenizer";
  MANTA_RETURN_IF_ERROR(MakeFolder(weights));
  MANTA_RETURN_IF_ERROR(MakeFolder(tokenizer));
  MANTA_RETURN_IF_ERROR(parameters.Save(weights, parameters.dtype()));
  const fs::path source = tokenizer_path.empty() ? model_path : tokenizer_path;
  if (!source.empty()) {
    for (const char* file : kTokenizerFiles) {
      MANTA_RETURN_IF_ERROR(CopyIfThere(source / file, weights / file));
      MANTA_RETURN_IF_ERROR(CopyIfThere(source / file, tokenizer / file));
    }
  }
  if (model_path.empty()) return absl::OkStatus();
  return CopyIfThere(model_path / "generation_config.json", weights / "generation_config.json");
}

absl::Status SaveOptimizerKind(const model::Parameters& parameters, const fs::path& policy, const std::string& kind,
                               const at::Tensor& flat) {
  const fs::path folder = policy / "optimizer";
  MANTA_RETURN_IF_ERROR(MakeFolder(folder));
  const auto* data = reinterpret_cast<const char*>(flat.const_data_ptr<float>());
  std::vector<checkpoint::TensorSource> tensors;
  for (const model::ParameterSpec& spec : parameters.table()) {
    tensors.push_back({Entry(spec, kind),
                       checkpoint::DType::kF32,
                       spec.shape,
                       {data + spec.offset * 4, static_cast<size_t>(spec.numel) * 4}});
  }
  return checkpoint::WriteSafetensors(folder / (kind + ".safetensors"), tensors);
}

absl::Status SaveTrainerState(const fs::path& policy, const TrainerState& state) {
  MANTA_RETURN_IF_ERROR(MakeFolder(policy / "optimizer"));
  const nlohmann::ordered_json json = {
      {"format", 1}, {"step", state.step}, {"schedule_step", state.schedule_step}, {"optimizer", state.has_optimizer}};
  return WriteFileAtomically(policy / "optimizer" / "trainer_state.json", json.dump(2) + "\n");
}

absl::StatusOr<at::Tensor> LoadOptimizerKind(const model::Parameters& parameters, const fs::path& policy,
                                             const std::string& kind) {
  const fs::path path = policy / "optimizer" / (kind + ".safetensors");
  MANTA_ASSIGN_OR_RETURN(const checkpoint::Checkpoint file, checkpoint::Checkpoint::Open(path));
  return model::CatchAten("loading the optimiser state", [&]() -> absl::StatusOr<at::Tensor> {
    at::Tensor flat = at::zeros({parameters.flat_values().numel()}, at::kFloat);
    auto* data = reinterpret_cast<char*>(flat.mutable_data_ptr<float>());
    for (const model::ParameterSpec& spec : parameters.table()) {
      const checkpoint::TensorView* view = file.Find(Entry(spec, kind));
      if (view == nullptr) return UserError(absl::StrCat(path.string(), ": no tensor ", Entry(spec, kind)));
      if (view->info->dtype != checkpoint::DType::kF32 || view->info->shape != spec.shape) {
        return UserError(absl::StrCat(path.string(), ": ", Entry(spec, kind), " has shape ",
                                      checkpoint::ShapeText(view->info->shape), "; float32 ",
                                      checkpoint::ShapeText(spec.shape), " is expected"));
      }
      std::memcpy(data + spec.offset * 4, view->bytes.data(), view->bytes.size());
    }
    return flat;
  });
}

absl::StatusOr<TrainerState> LoadTrainerState(const fs::path& policy) {
  const fs::path path = policy / "optimizer" / "trainer_state.json";
  MANTA_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  const auto json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  const auto count = [&](const char* key) {
    return json.is_object() && json.contains(key) && json[key].is_number_integer() ? json[key].get<int64_t>() : -1;
  };
  TrainerState state{count("step"), count("schedule_step"), false};
  if (count("format") != 1 || state.step < 0 || state.schedule_step < 0 || !json.contains("optimizer") ||
      !json["optimizer"].is_boolean()) {
    return UserError(absl::StrCat(path.string(), ": format 1 with step, schedule_step and optimizer is expected"));
  }
  state.has_optimizer = json["optimizer"].get<bool>();
  return state;
}

uint64_t FolderBytes(const fs::path& folder) {
  uint64_t bytes = 0;
  std::error_code error;
  for (fs::recursive_directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    std::error_code ignored;
    if (it->is_regular_file(ignored)) bytes += it->file_size(ignored);
  }
  return bytes;
}

}  // namespace manta::train
