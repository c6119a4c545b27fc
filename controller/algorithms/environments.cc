#include "controller/algorithms/environments.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace manta::controller {

int RewardThreads(const config::RunConfig& config, int cores) {
  int64_t asked = 1;
  for (const auto& [name, env] : config.env) asked = std::max(asked, env.num_workers);
  constexpr int64_t kMost = 256;  // that a reward worker takes
  return static_cast<int>(std::clamp<int64_t>(std::min<int64_t>(asked, cores), 1, kMost));
}

absl::Status CheckVerifiers(const config::Tree& tree, const config::RunConfig& config,
                            const std::vector<std::string>& known) {
  std::vector<std::string> used{config.data.train.env_name};
  if (config.data.validation) used.push_back(config.data.validation->env_name);
  for (const std::string& name : used) {
    const auto env = config.env.find(name);
    if (env == config.env.end()) continue;
    if (std::find(known.begin(), known.end(), env->second.verifier) != known.end()) continue;
    const std::string tree_path = absl::StrCat("env.", name), key = absl::StrCat(tree_path, ".verifier");
    return tree.Error(
        tree.Find(key) != nullptr ? key : tree_path,
        absl::StrCat("there is no verifier '", env->second.verifier, "', expected one of ", absl::StrJoin(known, ", "),
                     tree.Find(key) != nullptr ? "" : " as its key 'verifier'"));
  }
  return absl::OkStatus();
}

}  // namespace manta::controller
