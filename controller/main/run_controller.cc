#include "controller/main/run_controller.h"

#include <signal.h>

#include <cstdio>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/process_info.h"
#include "common/base/signals.h"
#include "common/base/status.h"
#include "common/rpc/server.h"
#include "common/rpc/token.h"
#include "controller/cluster/controller_service.h"
#include "controller/cluster/grpc_actor_port.h"
#include "controller/cluster/node_service.h"
#include "spdlog/spdlog.h"

namespace manta::controller {
namespace {

constexpr absl::Duration kStopGrace = absl::Seconds(1);     // a worker's, between SIGTERM and SIGKILL
constexpr absl::Duration kStopPatience = absl::Seconds(2);  // for the algorithm to notice
constexpr absl::Duration kWatcherGrace = absl::Seconds(1);  // for the command line to read the last event

class Controller {
 public:
  Controller(ControllerOptions options, std::string token, Algorithm algorithm)
      : options_(std::move(options)),
        token_(std::move(token)),
        algorithm_(std::move(algorithm)),
        actors_(loop_, token_),
        cluster_(loop_, actors_,
                 {.run_dir = options_.run_dir.string(),
                  .token_file = options_.token_file.string(),
                  .expected_nodes = options_.expected_nodes,
                  .node_timeout = options_.node_timeout,
                  .actor_timeout = options_.actor_timeout}),
        node_service_(loop_, &cluster_),
        registry_(loop_, &cluster_),
        service_(loop_, cluster_, events_,
                 [this](const std::string& reason) { Stop(absl::CancelledError("stopped: " + reason)); }),
        returned_(loop_) {}

  absl::Status Run() {
    MANTA_ASSIGN_OR_RETURN(server_, rpc::Server::Start({.listen = options_.listen, .token = token_},
                                                       {&node_service_, &registry_, &service_}));
    cluster_.set_controller_address(server_->address());
    cluster_.OnGroupFailed([this](const Group&, const absl::Status& status) { Stop(status); });
    WatchSignals();
    MANTA_RETURN_IF_ERROR(WatchParent());
    spdlog::info("listening on {}; the run's folder is {}", server_->address(), options_.run_dir.string());
    std::printf("listening %s\n", server_->address().c_str());
    std::fflush(stdout);
    absl::Status result = RunToCompletion(loop_, Drive(this));
    server_->Shutdown(kWatcherGrace);
    return result;
  }

 private:
  // The first reason stays.
  void Stop(absl::Status reason) {
    if (stop_.cancelled()) return;
    spdlog::info("stopping the run: {}", std::string(reason.message()));
    stop_.Cancel(std::move(reason));
  }

  static Task<absl::Status> Drive(Controller* self) {
    internal::RunDetached(self->algorithm_({.loop = &self->loop_,
                                            .cluster = &self->cluster_,
                                            .events = &self->events_,
                                            .run_dir = self->options_.run_dir,
                                            .config_path = self->options_.config_path,
                                            .bin_dir = self->options_.bin_dir,
                                            .stop = self->stop_.token()}),
                          [self](absl::StatusOr<RunOutcome> outcome) { self->returned_.Set(std::move(outcome)); });
    const auto on_stop = self->stop_.token().OnCancel([self] { self->StopCluster(); });
    if (self->stop_.cancelled()) self->StopCluster();
    const absl::StatusOr<RunOutcome> outcome = co_await self->returned_.Wait();
    absl::Status status = outcome.status();
    if (self->stop_.cancelled() && !status.ok()) {
      status = self->stop_.token().status();  // why it was stopped, rather than what broke while it was
    } else {
      status = co_await self->cluster_.Explain(status);
    }
    self->events_.Ended(status, outcome.ok() ? outcome->checkpoint : "", outcome.ok() ? outcome->summary : "");
    const absl::Status stopped = co_await self->cluster_.StopAll(kStopGrace);
    if (!stopped.ok()) spdlog::error("{}", std::string(stopped.message()));
    co_return status;
  }

  void StopCluster() {
    internal::RunDetached(cluster_.StopAll(kStopGrace), [](const absl::Status&) {});
    loop_.RunAfter(kStopPatience, [this] { returned_.Set(stop_.token().status()); });
  }

  void WatchSignals() {
    signals_.emplace(loop_, std::initializer_list<int>{SIGTERM, SIGINT}, [this](int number) {
      Stop(absl::CancelledError(number == SIGINT ? "interrupted (SIGINT)" : "told to end (SIGTERM)"));
    });
  }

  absl::Status WatchParent() {
    if (options_.parent_pid == 0) return absl::OkStatus();
    const int fd = OpenPidFd(options_.parent_pid);
    if (fd < 0) return absl::CancelledError("the process that started the controller is gone");
    loop_.WatchReadable(fd, [this, fd] {
      loop_.Unwatch(fd);
      if (events_.ended()) return;
      events_.Warning(absl::StrCat("manta run was killed (pid ", options_.parent_pid, "): stopping everything"));
      Stop(absl::CancelledError("manta run was killed"));
    });
    return absl::OkStatus();
  }

  const ControllerOptions options_;
  const std::string token_;
  const Algorithm algorithm_;
  EventLoop loop_;
  RunEvents events_;
  GrpcActorPort actors_;
  Cluster cluster_;
  NodeServiceImpl node_service_;
  ActorRegistryImpl registry_;
  ControllerServiceImpl service_;
  CancelSource stop_;
  OneShot<absl::StatusOr<RunOutcome>> returned_;
  std::unique_ptr<rpc::Server> server_;
  std::optional<SignalWatch> signals_;
};

}  // namespace

absl::Status RunController(ControllerOptions options, Algorithm algorithm) {
  BlockSignals({SIGTERM, SIGINT});
  signal(SIGPIPE, SIG_IGN);
  MANTA_ASSIGN_OR_RETURN(std::string token, rpc::ReadTokenFile(options.token_file));
  // Never destroyed: an algorithm that did not return in time still has frames that refer to it, and so have gRPC's
  // threads. The process ends next.
  auto* controller = new Controller(std::move(options), std::move(token), std::move(algorithm));
  return controller->Run();
}

}  // namespace manta::controller
