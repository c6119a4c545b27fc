// The commands that speak to a cluster: launch, join, nodes, actors, groups, jobs, describe, submit, call, logs, stop,
// drain, stacks, wait. One file a command; each takes --dir, and --json where it prints anything.
//
// Exit codes: 0 done; 1 the job failed, or the cluster refuses what is asked; 64 something given is wrong (a name that
// is not there, a flag); 69 the cluster does not answer, or a process or node died.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace CLI {
class App;
}

namespace manta::cli {

// A subcommand and what it does once its flags are parsed. `prints_error` false where it prints its own.
struct ClusterCommand {
  CLI::App* app;
  std::function<absl::Status()> run;
};
using ClusterCommands = std::vector<ClusterCommand>;

// --dir and --json.
struct CommonOptions {
  std::string dir;
  bool json = false;
};
void AddCommonOptions(CLI::App& app, CommonOptions* options);

// Adds all of them to `app`.
ClusterCommands AddClusterCommands(CLI::App& app);

void AddLaunch(CLI::App& app, ClusterCommands* commands);
void AddJoin(CLI::App& app, ClusterCommands* commands);
void AddLists(CLI::App& app, ClusterCommands* commands);  // nodes, actors, groups, jobs
void AddDescribe(CLI::App& app, ClusterCommands* commands);
void AddSubmit(CLI::App& app, ClusterCommands* commands);
void AddCall(CLI::App& app, ClusterCommands* commands);
void AddLogs(CLI::App& app, ClusterCommands* commands);
void AddStop(CLI::App& app, ClusterCommands* commands);
void AddDrain(CLI::App& app, ClusterCommands* commands);
void AddStacks(CLI::App& app, ClusterCommands* commands);
void AddWait(CLI::App& app, ClusterCommands* commands);
void AddInitCerts(CLI::App& app, ClusterCommands* commands);

}  // namespace manta::cli
