// What each verifier's file offers to the registry.
#pragma once

#include "worker_reward/verifiers/verifier.h"

namespace manta::reward {

absl::StatusOr<std::unique_ptr<Verifier>> MakeMathVerifier(const nlohmann::json& options);
absl::StatusOr<std::unique_ptr<Verifier>> MakeFormatVerifier(const nlohmann::json& options);

}  // namespace manta::reward
