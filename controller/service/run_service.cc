#include "controller/service/run_service.h"

#include <utility>

#include "common/rpc/stream_writer.h"
#include "controller/service/pending_reply.h"
#include "grpcpp/server_context.h"

namespace manta::controller {
namespace {

constexpr size_t kBatch = 256;  // events that a watcher has not read

}  // namespace

struct RunService::Watcher {
  std::shared_ptr<rpc::StreamWriter<v1::RunEvent>> writer;
  std::shared_ptr<RunEvents> events;
  uint64_t last_sent = 0;
  uint64_t listener = 0;
  bool retrying = false, done = false;
};

v1::GetStatusReply RunService::Status(const Runs::Run& run) const {
  v1::GetStatusReply reply;
  reply.set_run_dir(run.run_dir);
  reply.set_algorithm(run.events->algorithm());
  reply.set_step(run.events->step());
  reply.set_num_steps(run.events->num_steps());
  if (const auto job = core_->Describe(run.job); job.ok() && job->has_job()) {
    reply.set_head_restarts(job->job().head_restarts());
    reply.set_worker_restarts(job->job().worker_restarts());
  }
  v1::ListRequest all;
  all.set_nodes(true);
  all.set_actors(true);
  v1::ListReply list;
  core_->List(all, &list);
  for (const v1::NodeInfo& from : list.nodes()) {
    v1::NodeStatus* node = reply.add_nodes();
    node->set_node(from.node());
    node->set_cpu_slots(from.cpu_slots());
    node->set_cpu_slots_used(from.cpu_used());
    *node->mutable_gpus() = from.gpus();
    node->set_gpus_used(from.gpus_used());
    node->set_alive(from.state() != "LOST" && from.state() != "LEFT");
  }
  for (const v1::ActorInfo& from : list.actors()) {
    v1::ActorStatus* actor = reply.add_actors();
    actor->set_actor_id(from.actor_id());
    actor->set_node(from.node());
    actor->set_state(from.state());
    actor->set_pid(from.pid());
    actor->set_epoch(from.epoch());
    actor->set_address(from.address());
    actor->set_queued_calls(from.beat().queued());
    actor->set_resident_bytes(from.beat().resident());
  }
  return reply;
}

grpc::ServerUnaryReactor* RunService::GetStatus(grpc::CallbackServerContext* context,
                                                const v1::GetStatusRequest* request, v1::GetStatusReply* reply) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  loop_.Post([this, job = request->job(), answer = PendingReply<v1::GetStatusReply>(reactor, reply)]() mutable {
    const absl::StatusOr<Runs::Run> run = runs_->Find(job);
    if (run.ok()) {
      answer(Status(*run));
    } else {
      answer(run.status());
    }
  });
  return reactor;
}

grpc::ServerUnaryReactor* RunService::StopRun(grpc::CallbackServerContext* context, const v1::StopRunRequest* request,
                                              v1::StopRunReply* reply) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  loop_.Post([this, request = *request, answer = PendingReply<v1::StopRunReply>(reactor, reply)]() mutable {
    const absl::StatusOr<Runs::Run> run = runs_->Find(request.job());
    if (!run.ok()) return answer(run.status());
    runs_->Stop(run->job, request.reason());
    answer(v1::StopRunReply());
  });
  return reactor;
}

grpc::ServerWriteReactor<v1::RunEvent>* RunService::WatchRun(grpc::CallbackServerContext*,
                                                             const v1::WatchRunRequest* request) {
  auto watcher = std::make_shared<Watcher>();
  watcher->writer = rpc::StreamWriter<v1::RunEvent>::Create(kBatch);
  watcher->last_sent = request->after_sequence();
  auto* reactor = watcher->writer->reactor();
  loop_.Post([this, watcher, job = request->job()] {
    const absl::StatusOr<Runs::Run> run = runs_->Find(job);
    if (!run.ok()) {
      watcher->writer->Finish(run.status());
      return;
    }
    watcher->events = run->events;
    watcher->listener = watcher->events->AddListener([this, watcher] { Feed(watcher); });
    // One that goes away while nothing happens is noticed by the next event.
    Feed(watcher);
  });
  return reactor;
}

// Hands over what there is, as far as the watcher takes it; the history is the queue of one that reads slowly.
void RunService::Feed(const std::shared_ptr<Watcher>& watcher) {
  if (watcher->done) return;
  bool full = false;
  for (const v1::RunEvent& event : watcher->events->After(watcher->last_sent, kBatch)) {
    if (!watcher->writer->Write(event)) {
      full = true;
      break;
    }
    watcher->last_sent = event.sequence();
  }
  if (!full && watcher->last_sent < watcher->events->last_sequence()) full = true;  // more than one batch
  if (watcher->writer->cancelled() || (!full && watcher->events->ended())) {
    watcher->done = true;
    watcher->writer->Finish(absl::OkStatus());
    loop_.Post([watcher] { watcher->events->RemoveListener(watcher->listener); });
    return;
  }
  if (full && !watcher->retrying) {
    watcher->retrying = true;
    loop_.RunAfter(absl::Milliseconds(50), [this, watcher] {
      watcher->retrying = false;
      Feed(watcher);
    });
  }
}

}  // namespace manta::controller
