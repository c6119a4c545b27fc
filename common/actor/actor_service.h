// ActorService as every worker serves it. Handlers answer on gRPC's threads and never wait for work: the control lane
// is not a queue at all. What changes the worker goes through the Host's callbacks, on its loop. Thread-safe.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/base/event_loop.h"
#include "common/rpc/stream_writer.h"
#include "grpcpp/server_context.h"
#include "manta/v1/actor.grpc.pb.h"

namespace manta::actor {

class ControlService : public v1::ActorService::CallbackService {
 public:
  struct Host {
    EventLoop* loop;
    std::string actor_id;
    uint64_t epoch;
    std::function<v1::ActorBeat()> beat;  // without the state
    std::function<void(const v1::StopRequest&)> stop;
    std::function<void(const v1::PeerLostRequest&)> peer_lost;
  };
  explicit ControlService(Host host) : host_(std::move(host)) {}

  void set_state(v1::ActorState state) { state_ = state; }
  v1::ActorState state() const { return state_; }

  // On the loop's thread: beats every second from here on; EndBeats finishes the streams.
  void StartBeats();
  void EndBeats();

  grpc::ServerUnaryReactor* Ping(grpc::CallbackServerContext*, const v1::PingRequest*, v1::PingReply*) override;
  grpc::ServerWriteReactor<v1::ActorBeat>* Watch(grpc::CallbackServerContext*, const v1::WatchRequest*) override;
  grpc::ServerUnaryReactor* Stop(grpc::CallbackServerContext*, const v1::StopRequest*, v1::StopReply*) override;
  grpc::ServerUnaryReactor* PeerLost(grpc::CallbackServerContext*, const v1::PeerLostRequest*,
                                     v1::PeerLostReply*) override;

 private:
  using Writer = rpc::StreamWriter<v1::ActorBeat>;
  void SendBeats();

  const Host host_;
  std::atomic<v1::ActorState> state_ = v1::ACTOR_STATE_STARTING;
  std::vector<std::shared_ptr<Writer>> watchers_;  // the loop's
  bool beats_ended_ = false;                       // the loop's
};

}  // namespace manta::actor
