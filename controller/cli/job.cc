#include "controller/cli/job.h"

#include <signal.h>
#include <unistd.h>

#include <cstdio>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/signals.h"
#include "common/base/status.h"
#include "common/rpc/call.h"
#include "common/rpc/channel.h"
#include "common/rpc/keys.h"
#include "controller/cli/certificates.h"
#include "controller/cli/run_dir.h"

namespace manta::cli {
namespace {

constexpr absl::Duration kStartDeadline = absl::Seconds(20);
constexpr absl::Duration kOrderlyEnd = absl::Seconds(4);   // of the children after the run's end, or after Ctrl-C
constexpr absl::Duration kTellOfNode = absl::Seconds(3);   // for the controller, stopping or not, to end the run first
constexpr absl::Duration kLongestRun = absl::Hours(24 * 365);

}  // namespace

Job::Job(JobOptions options)
    : options_(std::move(options)),
      controller_restarts_(options_.max_restarts),
      node_restarts_(options_.max_restarts) {}
Job::~Job() = default;

absl::Status Job::Run() {
  const SignalWatch signals(loop_, {SIGINT, SIGTERM, SIGHUP}, [this](int) { OnSignal(); });
  absl::Status status = RunToCompletion(loop_, Drive());
  view_.Clear();
  controller_.reset();
  node_.reset();
  return status;
}

Task<absl::Status> Job::Drive() {
  MANTA_CO_RETURN_IF_ERROR(UseCertificates());
  const absl::StatusOr<rpc::RoleTokens> tokens = rpc::RoleTokens::InFolder(options_.run_dir);
  if (!tokens.ok()) co_return tokens.status();
  token_ = tokens->KeysOf(v1::ROLE_ADMIN);
  absl::Status status = co_await StartController();
  if (status.ok()) status = StartNode();
  if (status.ok()) {
    following_ = true;
    WatchNode();
    status = co_await Follow();
    following_ = false;
  }
  // Interrupted before the controller could say so, by a signal to it, say.
  if (!status.ok() && !run_ended_ && signals_seen_ > 0) status = absl::CancelledError("stopped: interrupted");
  co_await EndChildren();
  co_return status;
}

Task<absl::Status> Job::StartController() {
  const char* on_loss = options_.wait_on_loss ? "wait" : "stop";
  std::vector<std::string> args = {"--config",
                                   options_.config_path.string(),
                                   "--run-dir",
                                   options_.run_dir.string(),
                                   "--token-file",
                                   (options_.run_dir / "token").string(),
                                   "--on-controller-loss",
                                   on_loss,
                                   "--parent-pid",
                                   absl::StrCat(getpid())};
  MANTA_CO_ASSIGN_OR_RETURN(controller_,
                            Child::Start(loop_, "manta-controller", options_.bin_dir / "manta-controller",
                                         std::move(args), options_.run_dir / "logs" / "controller.log"));
  MANTA_CO_ASSIGN_OR_RETURN(address_, co_await controller_->Address(kStartDeadline));
  MANTA_CO_RETURN_IF_ERROR(WriteControllerAddress(options_.run_dir, address_));
  MANTA_CO_ASSIGN_OR_RETURN(const auto channel, rpc::OpenChannel(address_, token_));
  stubs_.push_back(v1::ControllerService::NewStub(channel));
  co_return absl::OkStatus();
}

absl::Status Job::StartNode() {
  MANTA_ASSIGN_OR_RETURN(
      node_,
      Child::Start(loop_, "manta-node", options_.bin_dir / "manta-node",
                   {"--controller", address_, "--token-file", (options_.run_dir / "token.node").string(), "--cpu-slots",
                    absl::StrCat(options_.cpu_slots), "--parent-pid", absl::StrCat(getpid())},
                   options_.run_dir / "logs" / "node.log"));
  return absl::OkStatus();
}

bool Job::MayRestart(const Child& child, Restarts* restarts) {
  return options_.wait_on_loss && child.killed() && !run_ended_ && signals_seen_ == 0 && restarts->Take(absl::Now());
}

void Job::WatchNode() {
  Spawn(loop_, node_->WaitEnded(kLongestRun), [this](bool) { OnNodeDeath(); });
}

void Job::OnNodeDeath() {
  if (!following_) return;
  if (MayRestart(*node_, &node_restarts_)) {
    view_.Clear();
    PrintDeath(node_->DeathStatus(), absl::StrCat("starting it again (", node_restarts_.count(), " of at most ",
                                                  node_restarts_.most(), " within a minute); the workers go on"));
    loop_.RunAfter(node_restarts_.Backoff(), [this] {
      if (!following_) return;
      const absl::Status started = StartNode();
      if (started.ok()) return WatchNode();
      node_death_ = started;
      give_up_.Cancel(started);
    });
    return;
  }
  // The controller tells of an agent that it has known. One that ends before it could join would be waited for.
  loop_.RunAfter(kTellOfNode, [this] {
    if (!following_) return;
    node_death_ = node_->DeathStatus();
    give_up_.Cancel(*node_death_);
  });
}

// Shows the run's events until its last, over as many controllers as it takes.
Task<absl::Status> Job::Follow() {
  while (true) {
    const std::optional<absl::Status> ended = co_await ReadEvents();
    if (ended.has_value()) co_return *ended;
    if (node_death_.has_value()) co_return *node_death_;
    // A controller that dies takes the stream with it, a moment before its exit can be seen.
    const bool died = co_await controller_->WaitEnded(absl::Seconds(1));
    if (!died) co_return broken_;
    MANTA_CO_RETURN_IF_ERROR(co_await StartControllerAgain());
  }
}

// How the run ended; nothing where the stream broke, which is then in broken_.
Task<std::optional<absl::Status>> Job::ReadEvents() {
  v1::WatchRunRequest request;
  request.set_after_sequence(last_event_);
  auto stream = rpc::OpenStream(loop_, stubs_.back()->async(), &rpc::AsyncOf<v1::ControllerService>::WatchRun, request,
                                {.deadline = kLongestRun, .cancel = give_up_.token()});
  while (true) {
    absl::StatusOr<std::optional<v1::RunEvent>> event = co_await stream.Next();
    if (event.ok() && event->has_value() && !(*event)->has_ended()) {
      last_event_ = (*event)->sequence();
      view_.Show(**event);
      continue;
    }
    view_.Clear();
    if (event.ok() && event->has_value()) {
      run_ended_ = true;
      summary_ = (*event)->ended().summary();
      checkpoint_ = (*event)->ended().checkpoint();
      co_return FromProto((*event)->ended().status());
    }
    broken_ = event.ok() ? absl::InternalError("manta-controller ended the run without saying how")
                         : Annotate(event.status(), "the connection to manta-controller broke");
    co_return std::nullopt;
  }
}

Task<absl::Status> Job::StartControllerAgain() {
  while (true) {
    const absl::Status death = controller_->DeathStatus();
    if (!MayRestart(*controller_, &controller_restarts_)) {
      const bool often = options_.wait_on_loss && controller_->killed() && controller_restarts_.count() > 0;
      if (!often || signals_seen_ > 0) co_return death;
      co_return Annotate(death, absl::StrCat("after ", controller_restarts_.count(),
                                             " restarts within a minute (cluster.max_controller_restarts)"));
    }
    PrintDeath(death, absl::StrCat("starting it again (", controller_restarts_.count(), " of at most ",
                                   controller_restarts_.most(), " within a minute); the workers go on"));
    const absl::Status waited = co_await Sleep(loop_, controller_restarts_.Backoff(), give_up_.token());
    if (!waited.ok() || signals_seen_ > 0) co_return absl::CancelledError("stopped: interrupted");
    const absl::Status started = co_await StartController();
    if (started.ok() || !controller_->killed()) co_return started;
  }
}

// In order: the controller ends by itself once its run has, and tells the node agent to. Then with signals.
Task<void> Job::EndChildren() {
  if (controller_ != nullptr && !run_ended_) controller_->Signal(SIGTERM);
  // Nobody else tells an agent that waits for a controller.
  const bool alone = controller_ == nullptr || controller_->ended();
  if (node_ != nullptr && !run_ended_ && alone) node_->Signal(SIGTERM);
  const std::vector<Child*> children{controller_.get(), node_.get()};  // named: see task.h on braced lists
  for (Child* child : children) {
    if (child == nullptr) continue;
    if (co_await child->WaitEnded(kOrderlyEnd)) continue;
    child->Signal(SIGTERM);
    if (co_await child->WaitEnded(absl::Seconds(2))) continue;
    child->Signal(SIGKILL);
    co_await child->WaitEnded(absl::Seconds(2));
  }
}

void Job::OnSignal() {
  ++signals_seen_;
  view_.Clear();
  if (signals_seen_ == 1) {
    std::fprintf(stderr, "manta: stopping the run (again to end it at once)\n");
    AskToStop("interrupted");
    // Should the controller not answer, its end is brought about by signals.
    loop_.RunAfter(kOrderlyEnd, [this] { give_up_.Cancel(absl::CancelledError("interrupted")); });
    return;
  }
  if (controller_ != nullptr) controller_->Signal(signals_seen_ == 2 ? SIGTERM : SIGKILL);
  if (node_ != nullptr) node_->Signal(signals_seen_ == 2 ? SIGTERM : SIGKILL);
  give_up_.Cancel(absl::CancelledError("interrupted"));
}

void Job::AskToStop(const std::string& reason) {
  if (stubs_.empty()) {
    if (controller_ != nullptr) controller_->Signal(SIGTERM);
    return;
  }
  v1::StopRunRequest request;
  request.set_reason(reason);
  Spawn(loop_,
        rpc::Call(loop_, stubs_.back()->async(), &rpc::AsyncOf<v1::ControllerService>::StopRun, request, {.deadline = absl::Seconds(2)}),
        [this](const absl::StatusOr<v1::StopRunReply>& reply) {
          if (!reply.ok() && controller_ != nullptr) controller_->Signal(SIGTERM);
        });
}

}  // namespace manta::cli
