// `manta nodes`, `manta actors`, `manta groups`, `manta jobs`.
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

struct ListOptions {
  CommonOptions common;
  v1::ListRequest request;
  std::string job, role;
};

void PrintNodes(const v1::ListReply& reply) {
  Table table({"node", "state", "cpu slots", "gpus", "memory", "silent", "address", "labels"});
  for (const v1::NodeInfo& node : reply.nodes()) {
    const std::string labels = absl::StrJoin(
        node.labels(), ",", [](std::string* out, const auto& l) { absl::StrAppend(out, l.first, "=", l.second); });
    table.Add({node.node(), node.state(), absl::StrCat(node.cpu_used(), " of ", node.cpu_slots()),
               absl::StrCat(node.gpus_used(), " of ", node.gpus_size()), Mebibytes(node.memory_bytes()),
               absl::StrCat(node.silent_ms(), " ms"), node.address().empty() ? "-" : node.address(),
               labels.empty() ? "-" : labels});
  }
  table.Print();
  for (const v1::NodeInfo& node : reply.nodes()) {
    if (!node.why_lost().empty()) std::printf("%s: %s\n", node.node().c_str(), node.why_lost().c_str());
  }
}

void PrintActors(const v1::ListReply& reply) {
  Table table({"actor", "state", "node", "pid", "epoch", "gpus", "queued", "done", "memory", "step", "address"});
  for (const v1::ActorInfo& actor : reply.actors()) {
    table.Add({actor.actor_id(), StateName(actor.state()), actor.node(), absl::StrCat(actor.pid()),
               absl::StrCat(actor.epoch() >> 32, ".", actor.epoch() & 0xffffffff), JoinInts(actor.gpus()),
               absl::StrCat(actor.beat().queued()), absl::StrCat(actor.beat().completed()),
               Mebibytes(actor.beat().resident()), actor.step() < 0 ? "-" : absl::StrCat(actor.step()),
               actor.address().empty() ? "-" : actor.address()});
  }
  table.Print();
}

void PrintGroups(const v1::ListReply& reply) {
  Table table({"group", "job", "state", "ranks", "restarts", "name", "waits for"});
  for (const v1::GroupInfo& group : reply.groups()) {
    table.Add({group.role(), group.job(), group.state(), absl::StrCat(group.ranks_size()),
               absl::StrCat(group.restarts()), group.name().empty() ? "-" : group.name(),
               group.waits_for().empty() ? "-" : group.waits_for()});
  }
  table.Print();
}

void PrintJobs(const v1::ListReply& reply) {
  Table table({"job", "name", "state", "result", "priority", "step", "head restarts", "worker restarts", "submitted",
               "run folder", "waits for"});
  for (const v1::JobInfo& job : reply.jobs()) {
    table.Add({job.job(), job.name().empty() ? "-" : job.name(), job.state(), ResultOf(job),
               absl::StrCat(job.priority()),
               job.num_steps() > 0 ? absl::StrCat(job.step(), " of ", job.num_steps()) : "-",
               absl::StrCat(job.head_restarts()), absl::StrCat(job.worker_restarts()), Ago(job.submitted_unix_ms()),
               job.run_dir(), job.waits_for().empty() ? "-" : job.waits_for()});
  }
  table.Print();
}

// All pages of it.
absl::StatusOr<v1::ListReply> ListAll(ClusterClient& client, v1::ListRequest request) {
  v1::ListReply all;
  while (true) {
    MANTA_ASSIGN_OR_RETURN(v1::ListReply page,
                           client.Call(&v1::ClusterService::Stub::List, client.cluster(), request, kAnswerDeadline));
    const std::string next = page.next();
    page.clear_next();
    all.MergeFrom(page);
    if (next.empty() || next == request.after()) return all;
    request.set_after(next);
  }
}

void AddList(CLI::App& app, ClusterCommands* commands, const std::string& name, const std::string& what,
             const v1::ListRequest& request, bool of_job, void (*print)(const v1::ListReply&)) {
  auto options = std::make_shared<ListOptions>();
  options->request = request;
  CLI::App* command = app.add_subcommand(name, what);
  AddCommonOptions(*command, &options->common);
  if (of_job) command->add_option("--job", options->job, "only of this job");
  if (of_job) command->add_option("--role", options->role, "only of this role");
  commands->push_back({command, [options, print]() -> absl::Status {
                         MANTA_ASSIGN_OR_RETURN(ClusterClient client, ClusterClient::Open(options->common.dir));
                         options->request.set_job(options->job);
                         options->request.set_role(options->role);
                         MANTA_ASSIGN_OR_RETURN(const v1::ListReply reply, ListAll(client, options->request));
                         if (options->common.json) {
                           PrintJson(reply);
                         } else {
                           print(reply);
                         }
                         return absl::OkStatus();
                       }});
}

}  // namespace

void AddLists(CLI::App& app, ClusterCommands* commands) {
  v1::ListRequest nodes, actors, groups, jobs;
  nodes.set_nodes(true);
  actors.set_actors(true);
  groups.set_groups(true);
  jobs.set_jobs(true);
  AddList(app, commands, "nodes", "List the cluster's nodes: their state, CPU slots, GPUs and labels", nodes, false,
          PrintNodes);
  AddList(app, commands, "actors", "List the worker processes: where they run, what waits in their queues", actors,
          true, PrintActors);
  AddList(app, commands, "groups", "List the groups of actors: state, restarts, what one waits for", groups, true,
          PrintGroups);
  AddList(app, commands, "jobs", "List the jobs: running, waiting and ended", jobs, false, PrintJobs);
}

}  // namespace manta::cli
