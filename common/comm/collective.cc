#include "common/comm/collective.h"

namespace manta::comm {

size_t SizeOf(DataType type) {
  switch (type) {
    case DataType::kF32:
      return 4;
    case DataType::kBF16:
      return 2;
    case DataType::kF64:
    case DataType::kI64:
      return 8;
  }
  return 0;
}

const char* Name(DataType type) {
  switch (type) {
    case DataType::kF32:
      return "f32";
    case DataType::kBF16:
      return "bf16";
    case DataType::kF64:
      return "f64";
    case DataType::kI64:
      return "i64";
  }
  return "?";
}

absl::Status Collective::AllReduceSum(absl::Span<float> data) {
  return AllReduce(data.data(), data.size(), DataType::kF32, ReduceOp::kSum);
}
absl::Status Collective::AllReduceSum(absl::Span<double> data) {
  return AllReduce(data.data(), data.size(), DataType::kF64, ReduceOp::kSum);
}
absl::Status Collective::AllReduceMax(absl::Span<float> data) {
  return AllReduce(data.data(), data.size(), DataType::kF32, ReduceOp::kMax);
}
absl::Status Collective::AllReduceMax(absl::Span<double> data) {
  return AllReduce(data.data(), data.size(), DataType::kF64, ReduceOp::kMax);
}

}  // namespace manta::comm
