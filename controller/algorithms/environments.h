// What the trees `env` ask of the reward workers. Pure functions.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/config/run_config.h"
#include "common/config/tree.h"

namespace manta::controller {

// Threads of a reward worker: what the environments ask for (env.*.num_workers, the most of them counts), but not more
// than there are cores.
int RewardThreads(const config::RunConfig& config, int cores);

// INVALID_ARGUMENT "file:line: env.NAME.verifier: ..." where the environment of a dataset has a verifier that is not
// among `known`: otherwise a misspelt name would show as a run whose samples all fail. Environments that no dataset
// names are not looked at.
[[nodiscard]] absl::Status CheckVerifiers(const config::Tree& tree, const config::RunConfig& config,
                                          const std::vector<std::string>& known);

}  // namespace manta::controller
