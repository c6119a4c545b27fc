// `manta wait --nodes N`: until so many nodes have joined.
#include <CLI/CLI.hpp>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "controller/cli/cluster_client.h"
#include "controller/cli/cluster_commands.h"
#include "controller/cli/output.h"

namespace manta::cli {
namespace {

struct WaitOptions {
  CommonOptions common;
  int nodes = 1;
  double timeout = 300;
};

absl::Status Wait(const WaitOptions& options) {
  MANTA_ASSIGN_OR_RETURN(ClusterClient client, ClusterClient::Open(options.common.dir));
  v1::WaitNodesRequest request;
  request.set_nodes(options.nodes);
  request.set_timeout_ms(static_cast<int64_t>(options.timeout * 1000));
  MANTA_ASSIGN_OR_RETURN(const v1::Done done, client.Call(&v1::ClusterService::Stub::WaitNodes, client.cluster(),
                                                          request, absl::Seconds(options.timeout) + kAnswerDeadline));
  if (options.common.json) {
    PrintJson(done);
  } else {
    std::printf("%d %s joined\n", options.nodes, options.nodes == 1 ? "node has" : "nodes have");
  }
  return absl::OkStatus();
}

}  // namespace

void AddWait(CLI::App& app, ClusterCommands* commands) {
  auto options = std::make_shared<WaitOptions>();
  CLI::App* command = app.add_subcommand("wait", "Wait until nodes have joined");
  command->add_option("--nodes", options->nodes, "how many")->check(CLI::Range(0, 1 << 20))->capture_default_str();
  command->add_option("--timeout", options->timeout, "seconds; then exit code 69")
      ->check(CLI::Range(0.0, 1e7))
      ->capture_default_str();
  AddCommonOptions(*command, &options->common);
  commands->push_back({command, [options] { return Wait(*options); }});
}

}  // namespace manta::cli
