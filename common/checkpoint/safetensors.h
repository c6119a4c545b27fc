// The safetensors header: 8 bytes of length, JSON, then the tensors' bytes without holes or overlaps.
//
// Parsing is strict and touches nothing but its argument: it is the fuzzer's target and the check that `manta` runs on
// a file before any worker opens it. Thread-safe. Every error is INVALID_ARGUMENT, names the file, the tensor and the
// field, and says what was expected. Free of LibTorch.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "common/checkpoint/dtype.h"

namespace manta::checkpoint {

inline constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // the reference implementation's cap

struct TensorInfo {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;  // empty: a scalar
  uint64_t begin = 0;          // bytes, from the start of the data section
  uint64_t end = 0;
  int64_t numel() const;
  uint64_t bytes() const { return end - begin; }
};

struct SafetensorsHeader {
  std::vector<TensorInfo> tensors;  // in the order of their bytes
  std::vector<std::pair<std::string, std::string>> metadata;
  uint64_t data_start = 0;  // of the file
};

// `prefix`: the first bytes of the file, at least the whole header where the file is that long; `file_size`: of the
// file.
[[nodiscard]] absl::StatusOr<SafetensorsHeader> ParseSafetensorsHeader(std::string_view prefix, uint64_t file_size,
                                                                       std::string_view file);

// The length and the JSON for tensors (in this order, packed from byte 0; begin and end are filled in), padded with
// spaces to a multiple of 8 bytes.
std::string SafetensorsHeaderBytes(std::vector<TensorInfo>& tensors,
                                   const std::vector<std::pair<std::string, std::string>>& metadata);

// Bytes of a tensor; none where the product overflows or (for packed types) is no whole number of bytes.
std::optional<uint64_t> TensorBytes(DType dtype, const std::vector<int64_t>& shape);

// "[2, 3]"
std::string ShapeText(const std::vector<int64_t>& shape);

}  // namespace manta::checkpoint
