// `manta describe NAME`: all that is known of a node, job, group or actor.
#include <CLI/CLI.hpp>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "controller/cli/cluster_client.h"
#include "controller/cli/cluster_commands.h"
#include "controller/cli/output.h"

namespace manta::cli {
namespace {

struct DescribeOptions {
  CommonOptions common;
  std::string what;
};

void PrintRanks(const google::protobuf::RepeatedPtrField<v1::ActorInfo>& ranks) {
  Table table({"rank", "actor", "state", "node", "pid", "gpus", "ports"});
  for (const v1::ActorInfo& rank : ranks) {
    table.Add({absl::StrCat(rank.rank()), rank.actor_id(), StateName(rank.state()), rank.node(),
               absl::StrCat(rank.pid()), JoinInts(rank.gpus()), JoinInts(rank.ports())});
  }
  table.Print();
}

void Print(const v1::DescribeReply& reply) {
  const auto line = [](const char* name, const std::string& value) {
    if (!value.empty()) std::printf("%-12s %s\n", name, value.c_str());
  };
  if (reply.has_node()) {
    const v1::NodeInfo& node = reply.node();
    line("node", node.node());
    line("state", absl::StrCat(node.state(), node.why_lost().empty() ? "" : ": ", node.why_lost()));
    line("cpu slots", absl::StrCat(node.cpu_used(), " of ", node.cpu_slots()));
    line("memory", Mebibytes(node.memory_bytes()));
    line("address", node.address());
    for (const auto& [key, value] : node.labels()) line("label", absl::StrCat(key, "=", value));
    for (const v1::Gpu& gpu : node.gpus()) {
      line("gpu",
           absl::StrCat(gpu.index(), " ", gpu.name(), ", ", Mebibytes(gpu.memory_bytes()), ", ", gpu.uuid(),
                        gpu.nvlink_domain().empty() ? "" : absl::StrCat(", NVLink domain ", gpu.nvlink_domain())));
    }
    for (const std::string& missing : node.missing()) line("lacks", missing);
  }
  if (reply.has_job()) {
    const v1::JobInfo& job = reply.job();
    line("job", absl::StrCat(job.job(), job.name().empty() ? "" : absl::StrCat(" (", job.name(), ")")));
    line("state", job.state());
    if (job.state() == "ENDED") line("result", ResultOf(job));
    line("priority", absl::StrCat(job.priority()));
    if (job.num_steps() > 0) line("step", absl::StrCat(job.step(), " of ", job.num_steps()));
    line("run folder", job.run_dir());
    line("submitted", Ago(job.submitted_unix_ms()));
    line("waits for", job.waits_for());
    line("restarts", absl::StrCat(job.worker_restarts(), " of its workers, ", job.head_restarts(), " of the controller"));
    line("why", job.status().message());
  }
  if (reply.has_group()) {
    const v1::GroupInfo& group = reply.group();
    line("group", absl::StrCat(group.job(), "/", group.role()));
    line("state", group.state());
    line("name", group.name());
    line("restarts", absl::StrCat(group.restarts()));
    line("waits for", group.waits_for());
    PrintRanks(group.ranks());
    for (const std::string& event : group.history()) line("history", event);
  }
  if (reply.has_actor()) {
    const v1::ActorInfo& actor = reply.actor();
    line("actor", actor.actor_id());
    line("state", StateName(actor.state()));
    line("node", actor.node());
    line("pid", absl::StrCat(actor.pid()));
    line("address", actor.address());
    line("gpus", JoinInts(actor.gpus()));
    line("memory", Mebibytes(actor.beat().resident()));
    line("queued", absl::StrCat(actor.beat().queued()));
    line("died", actor.died().message());
  }
  for (const std::string& event : reply.events()) line("event", event);
  for (const std::string& text : reply.last_lines()) std::printf("  | %s\n", text.c_str());
}

absl::Status Describe(const DescribeOptions& options) {
  MANTA_ASSIGN_OR_RETURN(ClusterClient client, ClusterClient::Open(options.common.dir));
  v1::DescribeRequest request;
  request.set_what(options.what);
  MANTA_ASSIGN_OR_RETURN(const v1::DescribeReply reply,
                         client.Call(&v1::ClusterService::Stub::Describe, client.cluster(), request, kAnswerDeadline));
  if (options.common.json) {
    PrintJson(reply);
  } else {
    Print(reply);
  }
  return absl::OkStatus();
}

}  // namespace

void AddDescribe(CLI::App& app, ClusterCommands* commands) {
  auto options = std::make_shared<DescribeOptions>();
  CLI::App* command = app.add_subcommand("describe", "Say all that is known of a node, job, group or actor");
  command->add_option("what", options->what, "its name, as the lists print it: n0, train, train-0, JOB")->required();
  AddCommonOptions(*command, &options->common);
  commands->push_back({command, [options] { return Describe(*options); }});
}

}  // namespace manta::cli
