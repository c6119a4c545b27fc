#include "controller/service/node_service.h"

#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "common/rpc/status.h"
#include "controller/service/pending_reply.h"
#include "grpcpp/server_context.h"

namespace manta::controller {
namespace {

constexpr int kMaxUnhandled = 256;             // events of one agent that wait for the loop
constexpr size_t kMaxQueuedBytes = 64u << 20;  // commands of one agent that wait to be sent

}  // namespace

// One agent's stream. gRPC's threads run the reactions, the loop runs the core. Lives until gRPC is done with it and
// the core holds it no more.
class NodeService::Session : public grpc::ServerBidiReactor<v1::NodeEvent, v1::NodeCommand>,
                             public core::AgentPort,
                             public std::enable_shared_from_this<Session> {
 public:
  Session(EventLoop& loop, core::Core* core, bool returns) : poster_(loop.poster()), core_(core), returns_(returns) {}
  void Start() {
    self_ = shared_from_this();
    StartRead(&incoming_);
  }

  // ---- AgentPort, on the loop
  void Send(const v1::NodeCommand& command) override {
    std::lock_guard lock(mu_);
    if (finish_.has_value()) return;
    queued_bytes_ += command.ByteSizeLong();
    if (queued_bytes_ > kMaxQueuedBytes) {
      queue_.clear();
      finish_ = rpc::ToGrpc(absl::ResourceExhaustedError("this agent does not read what it is sent"));
    } else {
      queue_.push_back(command);
    }
    Pump();
  }
  void Close(const absl::Status& status) override {
    std::lock_guard lock(mu_);
    if (!finish_.has_value()) finish_ = rpc::ToGrpc(status);
    Pump();
  }

  // ---- Reactions
  void OnReadDone(bool ok) override {
    if (!ok) {
      poster_.Post([session = shared_from_this()] { session->Ended(); });
      Close(absl::OkStatus());
      return;
    }
    poster_.Post([session = shared_from_this(), event = std::move(incoming_)] { session->OnEvent(event); });
    std::lock_guard lock(mu_);
    ++unhandled_;
    Read();
  }
  void OnWriteDone(bool ok) override {
    std::lock_guard lock(mu_);
    writing_ = false;
    if (!ok) queue_.clear();
    Pump();
  }
  void OnCancel() override { Close(absl::CancelledError("the agent has gone")); }
  void OnDone() override {
    {
      std::lock_guard lock(mu_);
      done_ = true;
    }
    poster_.Post([session = shared_from_this()] { session->Ended(); });
    const auto self = std::exchange(self_, nullptr);
  }

 private:
  void Read() {  // mu_ is held
    paused_ = unhandled_ >= kMaxUnhandled;
    if (paused_ || finishing_ || done_) return;
    incoming_ = v1::NodeEvent();
    StartRead(&incoming_);
  }
  void Pump() {  // mu_ is held
    if (writing_ || finishing_ || done_) return;
    if (!queue_.empty()) {
      writing_ = true;
      current_ = std::move(queue_.front());
      queue_.pop_front();
      queued_bytes_ -= current_.ByteSizeLong();
      StartWrite(&current_);
    } else if (finish_.has_value()) {
      finishing_ = true;
      Finish(*finish_);
    }
  }

  // On the loop:
  void OnEvent(const v1::NodeEvent& event) {
    Handle(event);
    std::lock_guard lock(mu_);
    --unhandled_;
    if (paused_ && unhandled_ < kMaxUnhandled / 2) Read();
  }
  void Handle(const v1::NodeEvent& event) {
    if (ended_) return;
    if (session_.has_value()) {
      core_->OnNodeEvent(*session_, event);
    } else if (!event.has_hello()) {
      Close(absl::InvalidArgumentError("the first event of an agent must be its hello"));
    } else if (absl::StatusOr<uint64_t> joined = core_->NodeJoined(event.hello(), shared_from_this()); joined.ok()) {
      session_ = *joined;
    } else {
      Close(joined.status());
    }
  }
  void Ended() {
    if (std::exchange(ended_, true) || !session_.has_value()) return;
    const char* why = "its connection has ended (the process has died, or was stopped)";
    core_->NodeDisconnected(*session_, absl::UnavailableError(why), /*left=*/!returns_);
  }

  const EventLoop::Poster poster_;
  core::Core* const core_;
  const bool returns_;
  v1::NodeEvent incoming_;
  std::mutex mu_;
  std::deque<v1::NodeCommand> queue_;
  size_t queued_bytes_ = 0;
  v1::NodeCommand current_;
  int unhandled_ = 0;
  bool paused_ = false, writing_ = false, finishing_ = false, done_ = false;
  std::optional<grpc::Status> finish_;
  std::optional<uint64_t> session_;  // the loop's
  bool ended_ = false;               // the loop's
  std::shared_ptr<Session> self_;
};

grpc::ServerBidiReactor<v1::NodeEvent, v1::NodeCommand>* NodeService::Join(grpc::CallbackServerContext*) {
  auto session = std::make_shared<Session>(loop_, core_, agents_return_);
  session->Start();
  return session.get();
}

}  // namespace manta::controller
