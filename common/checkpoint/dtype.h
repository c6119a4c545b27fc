// The element types of safetensors files.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace manta::checkpoint {

enum class DType {
  kBool,
  kU8,
  kI8,
  kF8E4M3,
  kF8E5M2,
  kF8E8M0,
  kI16,
  kU16,
  kF16,
  kBF16,
  kI32,
  kU32,
  kF32,
  kI64,
  kU64,
  kF64,
  kC64,
  kF4,
  kF6E2M3,
  kF6E3M2,
};

// "F32" -> kF32; none where the name is not one of the format's.
std::optional<DType> ParseDType(std::string_view name);
std::string_view DTypeName(DType dtype);
// Bits of one element: 4 and 6 for the packed types.
uint64_t DTypeBits(DType dtype);

}  // namespace manta::checkpoint
