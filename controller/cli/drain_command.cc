// `manta drain NODE...`: nothing new is placed there, and what runs there moves or ends.
#include <CLI/CLI.hpp>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status.h"
#include "controller/cli/cluster_client.h"
#include "controller/cli/cluster_commands.h"
#include "controller/cli/output.h"

namespace manta::cli {
namespace {

struct DrainOptions {
  CommonOptions common;
  std::vector<std::string> nodes;
  bool undo = false, wait = false;
  double deadline = 600;
};

absl::Status Drain(const DrainOptions& options) {
  MANTA_ASSIGN_OR_RETURN(ClusterClient client, ClusterClient::Open(options.common.dir));
  v1::DrainRequest request;
  for (const std::string& node : options.nodes) request.add_nodes(node);
  request.set_undo(options.undo);
  request.set_wait(options.wait);
  request.set_deadline_ms(static_cast<int64_t>(options.deadline * 1000));
  MANTA_ASSIGN_OR_RETURN(
      const v1::Done done,
      client.Call(&v1::ClusterService::Stub::Drain, client.cluster(), request,
                  kAnswerDeadline + (options.wait ? absl::Seconds(options.deadline) : absl::ZeroDuration())));
  if (options.common.json) {
    PrintJson(done);
  } else {
    std::printf("%s: %s\n", absl::StrJoin(options.nodes, ", ").c_str(),
                options.undo   ? "takes work again"
                : options.wait ? "drained"
                               : "draining");
  }
  return absl::OkStatus();
}

}  // namespace

void AddDrain(CLI::App& app, ClusterCommands* commands) {
  auto options = std::make_shared<DrainOptions>();
  CLI::App* command = app.add_subcommand("drain", "Take nodes out of use: nothing new is placed there");
  command->add_option("nodes", options->nodes, "their names")->required();
  command->add_flag("--undo", options->undo, "let them take work again");
  command->add_flag("--wait", options->wait, "until nothing runs there");
  command->add_option("--deadline", options->deadline, "seconds for what runs there to end or move")
      ->check(CLI::Range(0.0, 1e7))
      ->capture_default_str();
  AddCommonOptions(*command, &options->common);
  commands->push_back({command, [options] { return Drain(*options); }});
}

}  // namespace manta::cli
