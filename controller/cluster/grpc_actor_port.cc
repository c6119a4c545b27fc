#include "controller/cluster/grpc_actor_port.h"

#include <utility>

#include "common/base/task.h"
#include "common/rpc/call.h"
#include "common/rpc/channel.h"
#include "manta/v1/actor.grpc.pb.h"

namespace manta::controller {
namespace {

constexpr absl::Duration kLongestRun = absl::Hours(24 * 365);  // the beats' own rhythm is what tells of trouble

struct State {
  std::shared_ptr<grpc::Channel> channel;
  std::unique_ptr<v1::ActorService::Stub> stub;
  std::function<void(const v1::ActorBeat&)> on_beat;
  std::function<void(const absl::Status&)> on_end;
  CancelSource cancel;
};

Task<absl::Status> ReadBeats(EventLoop& loop, std::shared_ptr<State> state) {
  auto stream = rpc::OpenStream(loop, state->stub->async(), &rpc::AsyncOf<v1::ActorService>::Watch, {},
                                {.deadline = kLongestRun, .cancel = state->cancel.token()});
  while (true) {
    auto beat = co_await stream.Next();
    if (!beat.ok()) co_return beat.status();
    if (!beat->has_value()) co_return absl::OkStatus();
    if (state->on_beat) state->on_beat(**beat);
  }
}

class GrpcActorConnection : public ActorConnection {
 public:
  GrpcActorConnection(EventLoop& loop, std::shared_ptr<State> state) : loop_(loop), state_(std::move(state)) {
    internal::RunDetached(ReadBeats(loop_, state_), [state = state_](const absl::Status& status) {
      if (auto on_end = std::exchange(state->on_end, nullptr)) on_end(status);
    });
  }
  ~GrpcActorConnection() override {
    state_->on_beat = nullptr;
    state_->on_end = nullptr;
    state_->cancel.Cancel();
  }
  std::shared_ptr<grpc::Channel> channel() override { return state_->channel; }
  void PeerLost(const v1::PeerLostRequest& request) override {
    internal::RunDetached(rpc::Call(loop_, state_->stub->async(), &rpc::AsyncOf<v1::ActorService>::PeerLost, request,
                                    {.deadline = absl::Seconds(5)}),
                          // It may be dying itself: there is nobody else to tell. The state keeps the stub alive.
                          [state = state_](const absl::StatusOr<v1::PeerLostReply>&) {});
  }

 private:
  EventLoop& loop_;
  const std::shared_ptr<State> state_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<ActorConnection>> GrpcActorPort::Connect(
    const std::string& address, std::function<void(const v1::ActorBeat&)> on_beat,
    std::function<void(const absl::Status&)> on_end) {
  auto state = std::make_shared<State>();
  MANTA_ASSIGN_OR_RETURN(state->channel, rpc::OpenChannel(address, token_));
  state->stub = v1::ActorService::NewStub(state->channel);
  state->on_beat = std::move(on_beat);
  state->on_end = std::move(on_end);
  return std::make_unique<GrpcActorConnection>(loop_, std::move(state));
}

}  // namespace manta::controller
