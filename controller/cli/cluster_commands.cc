#include "controller/cli/cluster_commands.h"

#include <CLI/CLI.hpp>

namespace manta::cli {

void AddCommonOptions(CLI::App& app, CommonOptions* options) {
  app.add_option("--dir", options->dir, "the cluster's or run's folder (MANTA_DIR, logs/latest, ~/.manta/default)");
  app.add_flag("--json", options->json, "print one JSON object");
}

ClusterCommands AddClusterCommands(CLI::App& app) {
  ClusterCommands commands;
  AddLaunch(app, &commands);
  AddJoin(app, &commands);
  AddLists(app, &commands);
  AddDescribe(app, &commands);
  AddSubmit(app, &commands);
  AddCall(app, &commands);
  AddLogs(app, &commands);
  AddStop(app, &commands);
  AddDrain(app, &commands);
  AddStacks(app, &commands);
  AddWait(app, &commands);
  AddInitCerts(app, &commands);
  return commands;
}

}  // namespace manta::cli
