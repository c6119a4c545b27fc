#include "common/actor/flags.h"

#include <cstdlib>
#include <string_view>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/actor/shim_link.h"
#include "common/base/status.h"

namespace manta::actor {
namespace {

void FromEnvironment(const char* name, std::string* value) {
  const char* text = std::getenv(name);
  if (value->empty() && text != nullptr) *value = text;
}

}  // namespace

absl::StatusOr<WorkerFlags> ParseWorkerFlags(const std::vector<std::string>& args) {
  WorkerFlags flags;
  flags.actor_id.clear();
  std::string epoch, parent, listen;
  const std::pair<std::string_view, std::string*> known[] = {
      {"--actor-id", &flags.actor_id}, {"--epoch", &epoch},       {"--token-file", &flags.token_file},
      {"--listen", &listen},           {"--parent-pid", &parent},
  };
  for (size_t i = 0; i < args.size(); ++i) {
    if (args[i] == "--standalone") {
      flags.standalone = true;
      continue;
    }
    bool taken = false;
    for (const auto& [name, value] : known) {
      if (args[i] == name) {
        if (i + 1 == args.size()) return UserError(absl::StrCat(args[i], " needs a value"));
        *value = args[++i];
        taken = true;
      } else if (args[i].size() > name.size() && args[i].compare(0, name.size(), name) == 0 &&
                 args[i][name.size()] == '=') {
        *value = args[i].substr(name.size() + 1);
        taken = true;
      }
    }
    if (!taken) flags.rest.push_back(args[i]);
  }
  const bool supervised = !flags.standalone && std::getenv(kShimFdVariable) != nullptr;
  if (!flags.standalone) {
    FromEnvironment("MANTA_ACTOR_ID", &flags.actor_id);
    FromEnvironment("MANTA_EPOCH", &epoch);
    FromEnvironment("MANTA_CONTROLLER", &flags.controller);
    FromEnvironment("MANTA_TOKEN_FILE", &flags.token_file);
    FromEnvironment("MANTA_LISTEN", &listen);
  }
  if (!listen.empty()) flags.listen = listen;
  if (flags.actor_id.empty()) flags.actor_id = "standalone-0";
  if (!epoch.empty() && !absl::SimpleAtoi(epoch, &flags.epoch)) {
    return UserError(absl::StrCat("--epoch ", epoch, ": expected a number"));
  }
  if (!parent.empty() && (!absl::SimpleAtoi(parent, &flags.parent_pid) || flags.parent_pid <= 0)) {
    return UserError(absl::StrCat("--parent-pid ", parent, ": expected a process id"));
  }
  const size_t dash = flags.actor_id.rfind('-');
  if (dash == std::string::npos || !absl::SimpleAtoi(flags.actor_id.substr(dash + 1), &flags.rank)) {
    return UserError(absl::StrCat("--actor-id ", flags.actor_id, ": expected ROLE-RANK"));
  }
  if (flags.token_file.empty()) return UserError("--token-file is missing: no process serves without a job token");
  if (!flags.standalone && !supervised) {
    return UserError("no node agent has started this worker: --standalone runs one by hand");
  }
  return flags;
}

}  // namespace manta::actor
