#include "common/actor/actor_service.h"

#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "common/rpc/status.h"

namespace manta::actor {
namespace {

grpc::ServerUnaryReactor* Answer(grpc::CallbackServerContext* context, const absl::Status& status) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(rpc::ToGrpc(status));
  return reactor;
}

}  // namespace

grpc::ServerUnaryReactor* ControlService::Ping(grpc::CallbackServerContext* context, const v1::PingRequest*,
                                               v1::PingReply* reply) {
  reply->set_actor_id(host_.actor_id);
  reply->set_epoch(host_.epoch);
  reply->set_state(state_);
  reply->set_pid(getpid());
  return Answer(context, absl::OkStatus());
}

grpc::ServerWriteReactor<v1::ActorBeat>* ControlService::Watch(grpc::CallbackServerContext*, const v1::WatchRequest*) {
  auto writer = Writer::Create(/*max_queued=*/4);  // a watcher that does not read misses beats
  host_.loop->Post([this, writer] {
    if (beats_ended_) {
      writer->Finish(absl::OkStatus());
      return;
    }
    watchers_.push_back(writer);
    v1::ActorBeat beat = host_.beat();
    beat.set_state(state_);
    writer->Write(std::move(beat));
  });
  return writer->reactor();
}

grpc::ServerUnaryReactor* ControlService::Stop(grpc::CallbackServerContext* context, const v1::StopRequest* request,
                                               v1::StopReply*) {
  host_.loop->Post([this, request = *request] { host_.stop(request); });
  return Answer(context, absl::OkStatus());
}

grpc::ServerUnaryReactor* ControlService::PeerLost(grpc::CallbackServerContext* context,
                                                   const v1::PeerLostRequest* request, v1::PeerLostReply*) {
  if (request->epoch() != host_.epoch) {
    return Answer(context, absl::FailedPreconditionError(absl::StrCat("this is epoch ", host_.epoch, " of ",
                                                                      host_.actor_id, ", not ", request->epoch())));
  }
  host_.loop->Post([this, request = *request] { host_.peer_lost(request); });
  return Answer(context, absl::OkStatus());
}

void ControlService::StartBeats() {
  if (beats_ended_) return;
  SendBeats();
  host_.loop->RunAfter(absl::Seconds(1), [this] { StartBeats(); });
}

void ControlService::SendBeats() {
  std::erase_if(watchers_, [](const auto& watcher) { return watcher->cancelled(); });
  if (watchers_.empty()) return;
  v1::ActorBeat beat = host_.beat();
  beat.set_state(state_);
  for (const auto& watcher : watchers_) watcher->Write(beat);
}

void ControlService::EndBeats() {
  SendBeats();
  beats_ended_ = true;
  for (const auto& watcher : watchers_) watcher->Finish(absl::OkStatus());
  watchers_.clear();
}

}  // namespace manta::actor
