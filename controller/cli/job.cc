#include "controller/cli/job.h"

#include <signal.h>
#include <unistd.h>

#include <cstdio>

#include "absl/strings/str_cat.h"
#include "common/base/signals.h"
#include "common/base/status.h"
#include "common/rpc/call.h"
#include "common/rpc/keys.h"
#include "controller/cli/channels.h"
#include "controller/cli/run_dir.h"

namespace manta::cli {
namespace {

constexpr absl::Duration kStartDeadline = absl::Seconds(20);
constexpr absl::Duration kOrderlyEnd = absl::Seconds(4);   // of the children after the run's end, or after Ctrl-C
constexpr absl::Duration kTellOfNode = absl::Seconds(3);   // for the controller, stopping or not, to end the run first
constexpr absl::Duration kLongestRun = absl::Hours(24 * 365);

}  // namespace

Job::Job(JobOptions options) : options_(std::move(options)) {}
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
  const std::filesystem::path token_file = options_.run_dir / "token";
  const absl::StatusOr<rpc::RoleTokens> tokens = rpc::RoleTokens::InFolder(options_.run_dir);
  if (!tokens.ok()) co_return tokens.status();
  token_ = tokens->KeysOf(v1::ROLE_ADMIN);
  absl::StatusOr<std::unique_ptr<Child>> controller = Child::Start(
      loop_, "manta-controller", options_.bin_dir / "manta-controller",
      {"--config", options_.config_path.string(), "--run-dir", options_.run_dir.string(), "--token-file", token_file.string(),
       "--parent-pid", absl::StrCat(getpid())},
      options_.run_dir / "logs" / "controller.log");
  if (!controller.ok()) co_return controller.status();
  controller_ = *std::move(controller);
  absl::StatusOr<std::string> address = co_await controller_->Address(kStartDeadline);
  absl::Status status = address.status();
  if (status.ok()) status = StartNode(*address);
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

absl::Status Job::StartNode(const std::string& address) {
  MANTA_RETURN_IF_ERROR(WriteControllerAddress(options_.run_dir, address));
  MANTA_ASSIGN_OR_RETURN(const auto channel, OpenLastingChannel(address, token_));
  stub_ = v1::ControllerService::NewStub(channel);
  MANTA_ASSIGN_OR_RETURN(node_, Child::Start(loop_, "manta-node", options_.bin_dir / "manta-node",
                                             {"--controller", address, "--token-file", (options_.run_dir / "token.node").string(),
                                              "--cpu-slots", absl::StrCat(options_.cpu_slots), "--parent-pid",
                                              absl::StrCat(getpid())},
                                             options_.run_dir / "logs" / "node.log"));
  return absl::OkStatus();
}

// The controller tells of an agent that it has known. One that ends before it could join would be waited for.
void Job::WatchNode() {
  Spawn(loop_, node_->WaitEnded(kLongestRun), [this](bool) {
    loop_.RunAfter(kTellOfNode, [this] {
      if (!following_) return;
      node_death_ = node_->DeathStatus();
      give_up_.Cancel(*node_death_);
    });
  });
}

// Shows the run's events until its last. Where the stream breaks, the reason is looked for in the children.
Task<absl::Status> Job::Follow() {
  auto stream = rpc::OpenStream(loop_, stub_->async(), &rpc::AsyncOf<v1::ControllerService>::WatchRun, v1::WatchRunRequest(),
                                {.deadline = kLongestRun, .cancel = give_up_.token()});
  while (true) {
    absl::StatusOr<std::optional<v1::RunEvent>> event = co_await stream.Next();
    if (event.ok() && event->has_value() && !(*event)->has_ended()) {
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
    if (node_death_.has_value()) co_return *node_death_;
    // A controller that dies takes the stream with it, a moment before its exit can be seen.
    if (co_await controller_->WaitEnded(absl::Seconds(1))) co_return controller_->DeathStatus();
    if (!event.ok()) co_return Annotate(event.status(), "the connection to manta-controller broke");
    co_return absl::InternalError("manta-controller ended the run without saying how");
  }
}

// In order: the controller ends by itself once its run has, and tells the node agent to. Then with signals.
Task<void> Job::EndChildren() {
  if (controller_ != nullptr && !run_ended_) controller_->Signal(SIGTERM);
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
  if (stub_ == nullptr) {
    if (controller_ != nullptr) controller_->Signal(SIGTERM);
    return;
  }
  v1::StopRunRequest request;
  request.set_reason(reason);
  Spawn(loop_,
        rpc::Call(loop_, stub_->async(), &rpc::AsyncOf<v1::ControllerService>::StopRun, request, {.deadline = absl::Seconds(2)}),
        [this](const absl::StatusOr<v1::StopRunReply>& reply) {
          if (!reply.ok() && controller_ != nullptr) controller_->Signal(SIGTERM);
        });
}

}  // namespace manta::cli
