// Arrays on the wire: packed little-endian bytes. Manta runs on little-endian machines only.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"

namespace manta::gen {

static_assert(std::endian::native == std::endian::little);

template <typename T>
void AppendPacked(std::string* bytes, T value) {
  bytes->append(reinterpret_cast<const char*>(&value), sizeof(value));
}

// INVALID_ARGUMENT where `bytes` is no whole number of T. `field` is named in the error.
template <typename T>
absl::StatusOr<std::vector<T>> Unpack(std::string_view bytes, std::string_view field) {
  if (bytes.size() % sizeof(T) != 0) {
    return absl::InvalidArgumentError(absl::StrCat(absl::string_view(field.data(), field.size()), " has ", bytes.size(),
                                                   " bytes; it must be a multiple of ", sizeof(T)));
  }
  std::vector<T> values(bytes.size() / sizeof(T));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

}  // namespace manta::gen
