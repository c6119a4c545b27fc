#include "controller/cluster/controller_service.h"

#include <memory>
#include <utility>

#include "common/rpc/status.h"
#include "common/rpc/stream_writer.h"
#include "grpcpp/server_context.h"

namespace manta::controller {

struct ControllerServiceImpl::Watcher {
  std::shared_ptr<rpc::StreamWriter<v1::RunEvent>> writer;
  uint64_t last_sent = 0;
  uint64_t listener = 0;
  bool retrying = false, done = false;
};

grpc::ServerUnaryReactor* ControllerServiceImpl::GetStatus(grpc::CallbackServerContext* context,
                                                           const v1::GetStatusRequest*, v1::GetStatusReply* reply) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  loop_.Post([this, reactor, reply] {
    cluster_.FillStatus(reply);
    reply->set_algorithm(events_.algorithm());
    reply->set_step(events_.step());
    reply->set_num_steps(events_.num_steps());
    reactor->Finish(grpc::Status::OK);
  });
  return reactor;
}

grpc::ServerUnaryReactor* ControllerServiceImpl::StopRun(grpc::CallbackServerContext* context,
                                                         const v1::StopRunRequest* request, v1::StopRunReply*) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  loop_.Post([this, reactor, reason = request->reason()] {
    stop_(reason);
    reactor->Finish(grpc::Status::OK);
  });
  return reactor;
}

grpc::ServerWriteReactor<v1::RunEvent>* ControllerServiceImpl::WatchRun(grpc::CallbackServerContext*,
                                                                        const v1::WatchRunRequest* request) {
  auto watcher = std::make_shared<Watcher>();
  watcher->writer = rpc::StreamWriter<v1::RunEvent>::Create(/*max_queued=*/256);
  watcher->last_sent = request->after_sequence();
  auto* reactor = watcher->writer->reactor();
  loop_.Post([this, watcher] {
    watcher->listener = events_.AddListener([this, watcher] { Feed(watcher); });
    Feed(watcher);
  });
  return reactor;
}

// Hands over what there is, as far as the watcher takes it; the history is the queue of one that reads slowly.
void ControllerServiceImpl::Feed(const std::shared_ptr<Watcher>& watcher) {
  if (watcher->done) return;
  bool full = false;
  for (const v1::RunEvent& event : events_.After(watcher->last_sent, 256)) {
    if (!watcher->writer->Write(event)) {
      full = true;
      break;
    }
    watcher->last_sent = event.sequence();
  }
  if (!full && watcher->last_sent < events_.last_sequence()) full = true;  // more than one batch
  if (watcher->writer->cancelled() || (!full && events_.ended())) {
    watcher->done = true;
    watcher->writer->Finish(absl::OkStatus());
    events_.RemoveListener(watcher->listener);
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
