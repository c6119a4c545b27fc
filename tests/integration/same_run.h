// What two runs have in common that give the same, bit for bit. For tests.
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "absl/strings/match.h"
#include "common/base/file.h"
#include "gtest/gtest.h"

namespace manta::testing {

// What does not measure time.
inline std::map<std::string, double> Results(const std::map<std::string, double>& metrics) {
  std::map<std::string, double> results;
  for (const auto& [name, value] : metrics) {
    if (!absl::StartsWith(name, "timing/") && !absl::StartsWith(name, "performance/")) results[name] = value;
  }
  return results;
}

inline void ExpectSameFile(const std::filesystem::path& a, const std::filesystem::path& b) {
  const auto bytes = ReadFile(a);
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  EXPECT_TRUE(*bytes == ReadFile(b).value_or("")) << a << " and " << b << " differ";
}

}  // namespace manta::testing
