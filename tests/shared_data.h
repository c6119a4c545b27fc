// Where tests find the goldens and data that lie beside a checkout, and what they do where those are absent.
//
// MANTA_SHARED_DIR names the folder; by default it is ../shared, seen from the repository root, where ctest runs.
// A user's clone has none: such tests are skipped, and say so. MANTA_REQUIRE_SHARED=1 turns the skip into a failure.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>

#include "gtest/gtest.h"

namespace manta::testing {

inline std::filesystem::path SharedDir() {
  const char* dir = std::getenv("MANTA_SHARED_DIR");
  return dir != nullptr ? dir : "../shared";
}

inline bool RequireShared() {
  const char* require = std::getenv("MANTA_REQUIRE_SHARED");
  return require != nullptr && std::string(require) == "1";
}

}  // namespace manta::testing

// In a test body: MANTA_NEED_SHARED("goldens/models"); the path is then SharedDir() / "goldens/models".
#define MANTA_NEED_SHARED(relative)                                                            \
  do {                                                                                         \
    if (!std::filesystem::exists(::manta::testing::SharedDir() / (relative))) {                \
      if (::manta::testing::RequireShared()) FAIL() << (relative) << " is required, not found"; \
      GTEST_SKIP() << (relative) << " is not there: skipped";                                  \
    }                                                                                          \
  } while (false)
