// Answers to mathematical problems: the input's first line is the truth, the rest what a model wrote.
#include <cstdint>
#include <cstdlib>

#include "nlohmann/json.hpp"
#include "worker_reward/verifiers/verifier.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using manta::reward::Deadline;
  static const auto& verifier = *manta::reward::MakeVerifier("math", nlohmann::json::object())->release();
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t newline = std::min(input.find('\n'), input.size());
  const std::string_view truth = input.substr(0, newline);
  const std::string_view response = newline < input.size() ? input.substr(newline + 1) : std::string_view();
  (void)verifier.Verify({.response = response, .ground_truth = truth}, Deadline(absl::InfiniteFuture()));
  // The truth against itself.
  const std::string boxed = "\\boxed{" + std::string(truth) + "}";
  (void)verifier.Verify({.response = boxed, .ground_truth = truth}, Deadline(absl::InfiniteFuture()));
  return 0;
}
