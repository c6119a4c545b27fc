// Where tests find the programs that were built beside them.
#pragma once

#include <cstdlib>
#include <filesystem>

namespace manta::testing {

// The build folder, absolute: $MANTA_BUILD_DIR, as ctest sets it, or ./build.
inline std::filesystem::path BuildDir() {
  const char* given = std::getenv("MANTA_BUILD_DIR");
  return std::filesystem::absolute(given != nullptr ? given : "build");
}

}  // namespace manta::testing
