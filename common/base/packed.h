// Arrays on the wire: packed little-endian bytes. Manta runs on little-endian machines only.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/strings.h"

namespace manta {

static_assert(std::endian::native == std::endian::little);

template <typename T>
void AppendPacked(std::string* bytes, std::span<const T> values) {
  bytes->append(reinterpret_cast<const char*>(values.data()), values.size_bytes());
}

template <typename T>
  requires std::is_arithmetic_v<T>
void AppendPacked(std::string* bytes, T value) {
  AppendPacked(bytes, std::span<const T>(&value, 1));
}

// Appends what `bytes` holds to `values`. False, with nothing appended, where it is no whole number of T.
template <typename T>
[[nodiscard]] bool AppendUnpacked(std::string_view bytes, std::vector<T>* values) {
  if (bytes.size() % sizeof(T) != 0) return false;
  if (bytes.empty()) return true;
  const size_t old = values->size();
  values->resize(old + bytes.size() / sizeof(T));
  std::memcpy(values->data() + old, bytes.data(), bytes.size());
  return true;
}

// INVALID_ARGUMENT where `bytes` is no whole number of T. `field` is named in the error.
template <typename T>
[[nodiscard]] absl::StatusOr<std::vector<T>> Unpack(std::string_view bytes, std::string_view field) {
  std::vector<T> values;
  if (!AppendUnpacked(bytes, &values)) {
    return absl::InvalidArgumentError(
        StrCat(field, " has ", bytes.size(), " bytes; it must be a multiple of ", sizeof(T)));
  }
  return values;
}

}  // namespace manta
