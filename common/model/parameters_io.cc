// Parameters to and from checkpoints.
#include <cstring>
#include <string>
#include <vector>

#include "common/base/file.h"
#include "common/base/status.h"
#include "common/base/strings.h"
#include "common/checkpoint/reader.h"
#include "common/checkpoint/writer.h"
#include "common/model/catch_aten.h"
#include "common/model/parameters.h"

namespace manta::model {
namespace {

using checkpoint::Checkpoint;
using checkpoint::DType;
using checkpoint::TensorView;

constexpr std::string_view kEmbedding = "model.embed_tokens.weight", kHead = "lm_head.weight";

absl::StatusOr<at::ScalarType> FloatType(const TensorView& view) {
  switch (view.info->dtype) {
    case DType::kF32:
      return at::kFloat;
    case DType::kBF16:
      return at::kBFloat16;
    case DType::kF16:
      return at::kHalf;
    case DType::kF64:
      return at::kDouble;
    default:
      return UserError(StrCat(view.file, ": tensor \"", view.info->name, "\": expected F32, BF16, F16 or F64, got ",
                              checkpoint::DTypeName(view.info->dtype)));
  }
}

// A tensor over the mapped bytes; over a copy where they are not aligned to an element.
at::Tensor Wrap(const TensorView& view, at::ScalarType type) {
  const size_t element = c10::elementSize(type);
  void* data = const_cast<char*>(view.bytes.data());
  const at::Tensor mapped = at::from_blob(data, view.info->shape, at::TensorOptions().dtype(type));
  if (reinterpret_cast<uintptr_t>(data) % element == 0) return mapped;
  at::Tensor copy = at::empty(view.info->shape, at::TensorOptions().dtype(type));
  std::memcpy(copy.data_ptr(), data, view.bytes.size());
  return copy;
}

// What old files carry and no one needs.
bool Ignorable(std::string_view name, const ModelConfig& config) {
  if (name == kHead) return config.tie_word_embeddings;
  return name.find("rotary_emb.inv_freq") != std::string_view::npos;
}

std::string_view DTypeText(at::ScalarType type) {
  return type == at::kBFloat16 ? "bfloat16" : type == at::kHalf ? "float16" : "float32";
}

}  // namespace

absl::StatusOr<Parameters> Parameters::Load(const ModelConfig& config, const std::filesystem::path& path,
                                            at::ScalarType dtype, at::Device device) {
  MANTA_ASSIGN_OR_RETURN(const Checkpoint checkpoint, Checkpoint::Open(path));
  // Before anything is allocated: a config of another model must not ask for its memory.
  const std::vector<ParameterSpec> table = ParameterTable(config);
  std::vector<const TensorView*> views;
  for (const ParameterSpec& spec : table) {
    const TensorView* view = checkpoint.Find(spec.name);
    if (view == nullptr && spec.name == kEmbedding && config.tie_word_embeddings) view = checkpoint.Find(kHead);
    if (view == nullptr) {
      return UserError(StrCat(path.string(), ": tensor \"", spec.name, "\" is missing: expected shape ",
                              checkpoint::ShapeText(spec.shape)));
    }
    if (view->info->shape != spec.shape) {
      return UserError(StrCat(view->file, ": tensor \"", view->info->name, "\": shape ",
                              checkpoint::ShapeText(view->info->shape), ", the config expects ",
                              checkpoint::ShapeText(spec.shape)));
    }
    MANTA_RETURN_IF_ERROR(FloatType(*view).status());
    views.push_back(view);
  }
  MANTA_ASSIGN_OR_RETURN(Parameters parameters, Create(config, dtype, device));
  for (std::string_view name : checkpoint.names()) {
    if (parameters.Find(name) == nullptr && !Ignorable(name, config)) {
      return UserError(
          StrCat(checkpoint.Find(name)->file, ": tensor \"", name, "\": the config has no such parameter"));
    }
  }
  return CatchAten(path.string(), [&]() -> absl::StatusOr<Parameters> {
    for (size_t i = 0; i < table.size(); ++i) {
      MANTA_ASSIGN_OR_RETURN(const at::ScalarType type, FloatType(*views[i]));
      parameters.Value(table[i].name).copy_(Wrap(*views[i], type));
    }
    return parameters;
  });
}

absl::Status Parameters::Save(const std::filesystem::path& folder, at::ScalarType dtype,
                              uint64_t max_shard_bytes) const {
  DType type = DType::kF32;
  if (dtype == at::kBFloat16) {
    type = DType::kBF16;
  } else if (dtype == at::kHalf) {
    type = DType::kF16;
  } else if (dtype != at::kFloat) {
    return UserError(StrCat(folder.string(), ": weights can be saved as float32, bfloat16 or float16"));
  }
  std::vector<at::Tensor> tensors;
  std::vector<checkpoint::TensorSource> sources;
  MANTA_RETURN_IF_ERROR(CatchAten(folder.string(), [&]() -> absl::Status {
    ForEach([&](const ParameterSpec& spec, const at::Tensor& value) {
      const at::Tensor host = value.to(at::kCPU, dtype).contiguous();
      tensors.push_back(host);
      sources.push_back(
          {spec.name, type, spec.shape, {static_cast<const char*>(host.const_data_ptr()), host.nbytes()}});
    });
    return absl::OkStatus();
  }));
  MANTA_RETURN_IF_ERROR(WriteFileAtomically(folder / "config.json", ModelConfigText(config(), DTypeText(dtype))));
  return checkpoint::WriteCheckpoint(folder, sources, max_shard_bytes);
}

}  // namespace manta::model
