// Verifier: scores one response against the truth. Implementations are pure text processing: they execute nothing that
// a model wrote, are safe to use from several threads at once, and look at the deadline wherever their work can grow.
//
// A wrong answer is a score. What keeps a score from being given (no ground truth, a deadline that passed, a fault) is
// an error, never a zero: such a sample is not trained on.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "nlohmann/json_fwd.hpp"

namespace manta::reward {

struct VerifierSample {
  std::string_view prompt;
  std::string_view response;
  std::string_view ground_truth;
  std::string_view metadata_json;
};

struct Score {
  double reward = 0;
  std::map<std::string, double> components;
  std::string extracted_answer;
};

class Deadline {
 public:
  explicit Deadline(absl::Time at) : at_(at) {}
  bool passed() const { return absl::Now() >= at_; }

 private:
  absl::Time at_;
};

class Verifier {
 public:
  virtual ~Verifier() = default;
  [[nodiscard]] virtual absl::StatusOr<Score> Verify(const VerifierSample& sample, const Deadline& deadline) const = 0;
};

// The verifier of that name with `options` (an object; the environment's `options`). INVALID_ARGUMENT, naming the
// option and what was expected, where one is unknown or of the wrong type; NOT_FOUND for an unknown name.
[[nodiscard]] absl::StatusOr<std::unique_ptr<Verifier>> MakeVerifier(std::string_view name,
                                                                     const nlohmann::json& options);

std::vector<std::string> VerifierNames();

}  // namespace manta::reward
