#include "worker_reward/verifiers/registry.h"

#include <utility>

#include "absl/strings/str_join.h"
#include "common/base/strings.h"

namespace manta::reward {
namespace {

using Maker = absl::StatusOr<std::unique_ptr<Verifier>> (*)(const nlohmann::json&);
constexpr std::pair<const char*, Maker> kVerifiers[] = {{"format", MakeFormatVerifier}, {"math", MakeMathVerifier}};

}  // namespace

absl::StatusOr<std::unique_ptr<Verifier>> MakeVerifier(std::string_view name, const nlohmann::json& options) {
  for (const auto& [known, make] : kVerifiers) {
    if (name == known) return make(options);
  }
  return absl::NotFoundError(
      StrCat("there is no verifier '", name, "'; there are ", absl::StrJoin(VerifierNames(), ", ")));
}

std::vector<std::string> VerifierNames() {
  std::vector<std::string> names;
  for (const auto& [name, make] : kVerifiers) names.push_back(name);
  return names;
}

}  // namespace manta::reward
