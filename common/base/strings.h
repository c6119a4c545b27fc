// manta::StrCat is absl::StrCat that also takes std::string_view: Debian's Abseil has its own string_view type.
#pragma once

#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace manta {
namespace internal {
inline absl::string_view StrCatPiece(std::string_view text) {
  return {text.data(), text.size()};
}
template <typename T>
const T& StrCatPiece(const T& value) {
  return value;
}
}  // namespace internal

template <typename... Args>
std::string StrCat(const Args&... args) {
  return absl::StrCat(internal::StrCatPiece(args)...);
}

}  // namespace manta
