// `manta status`: a run's step, nodes and actors; a cluster's nodes and jobs.
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "controller/cli/cluster_client.h"
#include "controller/cli/output.h"
#include "controller/cli/run_command.h"
#include "controller/cli/terminal.h"

namespace manta::cli {
namespace {

void Print(const v1::GetStatusReply& reply) {
  std::printf("run      %s\nprogram  %s", reply.run_dir().c_str(), reply.algorithm().c_str());
  if (reply.num_steps() > 0) {  // known once the loop has begun; an evaluation has none
    std::printf(", step %lld of %lld", static_cast<long long>(reply.step()), static_cast<long long>(reply.num_steps()));
  }
  if (reply.head_restarts() > 0) std::printf(", controller restarted %d times", reply.head_restarts());
  if (reply.worker_restarts() > 0) std::printf(", workers restarted %d times", reply.worker_restarts());
  std::printf("\n\n");
  Table nodes({"node", "alive", "cpu slots", "gpus"});
  for (const v1::NodeStatus& node : reply.nodes()) {
    nodes.Add({node.node(), node.alive() ? "yes" : "no", absl::StrCat(node.cpu_slots_used(), " of ", node.cpu_slots()),
               absl::StrCat(node.gpus_used(), " of ", node.gpus_size())});
  }
  nodes.Print();
  std::printf("\n");
  Table actors({"actor", "node", "state", "pid", "queued", "memory"});
  for (const v1::ActorStatus& actor : reply.actors()) {
    actors.Add({actor.actor_id(), actor.node(), StateName(actor.state()), absl::StrCat(actor.pid()),
                absl::StrCat(actor.queued_calls()), Mebibytes(actor.resident_bytes())});
  }
  actors.Print();
}

void Print(const ClusterClient& client, const v1::ListReply& reply) {
  std::printf("cluster  %s at %s\n\n", client.dir().c_str(), client.address().c_str());
  Table nodes({"node", "state", "cpu slots", "gpus"});
  for (const v1::NodeInfo& node : reply.nodes()) {
    nodes.Add({node.node(), node.state(), absl::StrCat(node.cpu_used(), " of ", node.cpu_slots()),
               absl::StrCat(node.gpus_used(), " of ", node.gpus_size())});
  }
  nodes.Print();
  if (reply.jobs().empty()) return;
  std::printf("\n");
  Table jobs({"job", "name", "state", "step"});
  for (const v1::JobInfo& job : reply.jobs()) {
    jobs.Add({job.job(), job.name(), job.state(),
              job.num_steps() > 0 ? absl::StrCat(job.step(), " of ", job.num_steps()) : "-"});
  }
  jobs.Print();
}

absl::Status StatusOf(const std::string& dir, bool json) {
  MANTA_ASSIGN_OR_RETURN(ClusterClient client, ClusterClient::Open(dir));
  const absl::StatusOr<v1::GetStatusReply> run =
      client.Call(&v1::ControllerService::Stub::GetStatus, client.runs(), v1::GetStatusRequest(), kAnswerDeadline);
  if (run.ok()) {
    if (json) {
      PrintJson(*run);
    } else {
      Print(*run);
    }
    return absl::OkStatus();
  }
  if (!absl::IsNotFound(run.status())) return run.status();
  // No job, or several: the cluster as a whole.
  v1::ListRequest request;
  request.set_nodes(true);
  request.set_jobs(true);
  MANTA_ASSIGN_OR_RETURN(const v1::ListReply list,
                         client.Call(&v1::ClusterService::Stub::List, client.cluster(), request, kAnswerDeadline));
  if (json) {
    PrintJson(list);
  } else {
    Print(client, list);
  }
  return absl::OkStatus();
}

}  // namespace

int Status(const std::string& dir, bool json) {
  return PrintError(StatusOf(dir, json));
}

}  // namespace manta::cli
