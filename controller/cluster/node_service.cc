#include "controller/cluster/node_service.h"

#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "common/rpc/status.h"
#include "grpcpp/server_context.h"

namespace manta::controller {

// One agent's stream. gRPC's threads run the reactions; the loop knows the agent's name. A Session lives until gRPC is
// done with it and nobody holds it as a link.
class NodeServiceImpl::Session : public grpc::ServerBidiReactor<v1::NodeEvent, v1::NodeCommand>,
                                 public NodeLink,
                                 public std::enable_shared_from_this<Session> {
 public:
  Session(EventLoop& loop, Cluster* cluster) : poster_(loop.poster()), cluster_(cluster) {}
  void Start() {
    self_ = shared_from_this();
    StartRead(&incoming_);
  }

  // ---- NodeLink, on the loop
  void Send(const v1::NodeCommand& command) override {
    std::lock_guard lock(mu_);
    if (finish_.has_value()) return;
    queue_.push_back(command);
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
    incoming_ = v1::NodeEvent();
    StartRead(&incoming_);
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
  void Pump() {  // mu_ is held
    if (writing_ || finishing_ || done_) return;
    if (!queue_.empty()) {
      writing_ = true;
      current_ = std::move(queue_.front());
      queue_.pop_front();
      StartWrite(&current_);
    } else if (finish_.has_value()) {
      finishing_ = true;
      Finish(*finish_);
    }
  }
  // On the loop:
  void OnEvent(const v1::NodeEvent& event) {
    if (ended_) return;
    if (!name_.empty()) {
      cluster_->NodeEvent(name_, event);
    } else if (event.has_hello()) {
      const absl::Status joined = cluster_->NodeJoined(event.hello(), shared_from_this());
      if (joined.ok()) {
        name_ = event.hello().node();
      } else {
        Close(joined);
      }
    } else {
      Close(absl::InvalidArgumentError("the first event of an agent must be its hello"));
    }
  }
  void Ended() {
    if (std::exchange(ended_, true) || name_.empty()) return;
    cluster_->NodeGone(name_, "its connection has ended (the process has died, or was stopped)");
  }

  const EventLoop::Poster poster_;
  Cluster* const cluster_;
  v1::NodeEvent incoming_;
  std::mutex mu_;
  std::deque<v1::NodeCommand> queue_;
  v1::NodeCommand current_;
  bool writing_ = false, finishing_ = false, done_ = false;
  std::optional<grpc::Status> finish_;
  std::string name_;    // the loop's
  bool ended_ = false;  // the loop's
  std::shared_ptr<Session> self_;
};

grpc::ServerBidiReactor<v1::NodeEvent, v1::NodeCommand>* NodeServiceImpl::Join(grpc::CallbackServerContext*) {
  auto session = std::make_shared<Session>(loop_, cluster_);
  session->Start();
  return session.get();
}

grpc::ServerUnaryReactor* ActorRegistryImpl::Announce(grpc::CallbackServerContext* context,
                                                      const v1::AnnounceRequest* request, v1::AnnounceReply*) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  loop_.Post([this, reactor, request = *request] { reactor->Finish(rpc::ToGrpc(cluster_->Announce(request))); });
  return reactor;
}

}  // namespace manta::controller
