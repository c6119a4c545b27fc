// `manta stacks`: what every thread of the workers does now.
#include <CLI/CLI.hpp>
#include <cstdio>

#include "common/base/status.h"
#include "controller/cli/cluster_client.h"
#include "controller/cli/cluster_commands.h"
#include "controller/cli/output.h"

namespace manta::cli {
namespace {

struct StacksOptions {
  CommonOptions common;
  std::string job, role;
};

absl::Status Stacks(const StacksOptions& options) {
  MANTA_ASSIGN_OR_RETURN(ClusterClient client, ClusterClient::Open(options.common.dir));
  v1::ListRequest request;
  request.set_job(options.job);
  request.set_role(options.role);
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + 2 * kAnswerDeadline));
  const auto reader = client.cluster().Stacks(&context, request);
  v1::StackDump dump;
  int dumps = 0;
  for (; reader->Read(&dump); ++dumps) {
    if (options.common.json) {
      PrintJson(dump);  // an object each
    } else {
      std::printf("==== %s\n%s\n", dump.actor().actor_id().c_str(), dump.text().c_str());
    }
  }
  MANTA_RETURN_IF_ERROR(client.Explain(rpc::FromGrpc(reader->Finish())));
  if (dumps == 0) return absl::NotFoundError("no actor has answered with its stacks");
  return absl::OkStatus();
}

}  // namespace

void AddStacks(CLI::App& app, ClusterCommands* commands) {
  auto options = std::make_shared<StacksOptions>();
  CLI::App* command = app.add_subcommand("stacks", "Print what every thread of the workers does now");
  command->add_option("--job", options->job, "only of this job");
  command->add_option("--role", options->role, "only of this role");
  AddCommonOptions(*command, &options->common);
  commands->push_back({command, [options] { return Stacks(*options); }});
}

}  // namespace manta::cli
