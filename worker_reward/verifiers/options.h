// Reads a verifier's options and finds what is wrong with them. Not thread-safe.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "nlohmann/json.hpp"

namespace manta::reward {

class OptionReader {
 public:
  // `verifier` is what errors call it.
  OptionReader(std::string verifier, const nlohmann::json& options);

  // The option's value, or what it is where it was not given.
  void Number(const std::string& name, double* value);
  void Text(const std::string& name, std::string* value);
  void Choice(const std::string& name, const std::vector<std::string>& allowed, std::string* value);
  void Texts(const std::string& name, std::vector<std::string>* values);

  // The first error; unknown options are one.
  [[nodiscard]] absl::Status Finish() const;

 private:
  const nlohmann::json* Find(const std::string& name);
  void Expect(const std::string& name, const std::string& what, const nlohmann::json& found);

  std::string verifier_;
  const nlohmann::json& options_;
  std::set<std::string> known_;
  absl::Status status_;
};

}  // namespace manta::reward
