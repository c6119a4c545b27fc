#include "tests/golden/loss_case.h"

#include <cstring>
#include <stdexcept>

#include "absl/strings/str_cat.h"
#include "common/base/file.h"
#include "common/base/status.h"
#include "common/checkpoint/reader.h"

namespace manta::golden {
namespace {

template <typename T>
void Widen(const char* bytes, size_t count, std::vector<double>& out) {
  out.resize(count);
  for (size_t i = 0; i < count; ++i) {
    T value;
    std::memcpy(&value, bytes + i * sizeof(T), sizeof(T));
    out[i] = static_cast<double>(value);
  }
}

void WidenBf16(const char* bytes, size_t count, std::vector<double>& out) {
  out.resize(count);
  for (size_t i = 0; i < count; ++i) {
    uint16_t half;
    std::memcpy(&half, bytes + i * 2, 2);
    const uint32_t bits = static_cast<uint32_t>(half) << 16;
    float value;
    std::memcpy(&value, &bits, 4);
    out[i] = value;
  }
}

absl::StatusOr<std::map<std::string, LossTensor>> ReadTensors(const std::filesystem::path& path) {
  MANTA_ASSIGN_OR_RETURN(const checkpoint::Checkpoint file, checkpoint::Checkpoint::Open(path));
  std::map<std::string, LossTensor> tensors;
  for (std::string_view name : file.names()) {
    const checkpoint::TensorView& view = *file.Find(name);
    LossTensor tensor;
    tensor.shape = view.info->shape;
    const auto count = static_cast<size_t>(view.info->numel());
    switch (view.info->dtype) {
      case checkpoint::DType::kF64:
        Widen<double>(view.bytes.data(), count, tensor.data);
        break;
      case checkpoint::DType::kF32:
        Widen<float>(view.bytes.data(), count, tensor.data);
        break;
      case checkpoint::DType::kI64:
        Widen<int64_t>(view.bytes.data(), count, tensor.data);
        break;
      case checkpoint::DType::kI32:
        Widen<int32_t>(view.bytes.data(), count, tensor.data);
        break;
      case checkpoint::DType::kBF16:
        WidenBf16(view.bytes.data(), count, tensor.data);
        break;
      case checkpoint::DType::kU8:
      case checkpoint::DType::kBool:
        Widen<uint8_t>(view.bytes.data(), count, tensor.data);
        break;
      default:
        return absl::InvalidArgumentError(
            absl::StrCat(path.string(), ": ", std::string(name), " has a type not used here"));
    }
    tensors.emplace(name, std::move(tensor));
  }
  return tensors;
}

}  // namespace

absl::StatusOr<LossCase> LossCase::Load(const std::filesystem::path& directory, const std::string& group,
                                        const std::string& name) {
  LossCase c;
  c.group_ = group;
  c.name_ = group + "/" + name;
  MANTA_ASSIGN_OR_RETURN(const std::string text, ReadFile(directory / group / (name + ".json")));
  try {
    c.json_ = nlohmann::json::parse(text);
    if (c.json_.contains("tensor_file")) {
      MANTA_ASSIGN_OR_RETURN(c.tensors_, ReadTensors(directory / group / c.json_.at("tensor_file").get<std::string>()));
    }
  } catch (const std::exception& error) {
    return absl::InvalidArgumentError(error.what());
  }
  return c;
}

const LossTensor& LossCase::Get(const std::string& tensor) const {
  const auto it = tensors_.find(tensor);
  if (it == tensors_.end()) throw std::out_of_range("no tensor " + tensor);
  return it->second;
}

Tolerance LossCase::tolerance(const std::string& kind) const {
  Tolerance result = kind == "f64" ? Tolerance{1e-8, 1e-10} : Tolerance{};
  const auto all = json_.value("tolerance", nlohmann::json::object());
  if (!all.contains(kind)) return result;
  return {all.at(kind).value("rtol", result.rtol), all.at(kind).value("atol", result.atol)};
}

double Number(const nlohmann::json& value) {
  if (!value.is_string()) return value.get<double>();
  const std::string text = value;
  if (text == "inf") return std::numeric_limits<double>::infinity();
  if (text == "-inf") return -std::numeric_limits<double>::infinity();
  if (text == "nan") return std::numeric_limits<double>::quiet_NaN();
  throw std::invalid_argument("not a number: " + text);
}

std::optional<double> OptionalNumber(const nlohmann::json& object, const char* key) {
  if (!object.contains(key) || object.at(key).is_null()) return std::nullopt;
  return Number(object.at(key));
}

void CompareScalar(Report& report, const LossCase& c, const std::string& tensor, double actual, double expected,
                   Tolerance tolerance) {
  Comparison comparison(tolerance);
  comparison.Add(actual, expected);
  comparison.Print(report, c.name(), tensor);
}

}  // namespace manta::golden
