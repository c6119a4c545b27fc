#include "controller/node/agent.h"

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "spdlog/spdlog.h"

namespace manta::node {
namespace {

constexpr absl::Duration kAgentGrace = absl::Seconds(10);  // where actors wait for a new agent

}  // namespace

Agent::Agent(EventLoop& loop, std::vector<v1::Gpu> gpus, Send send, std::function<void()> on_done)
    : loop_(loop), gpus_(std::move(gpus)), send_(std::move(send)), on_done_(std::move(on_done)) {}

void Agent::OnCommand(const v1::NodeCommand& command) {
  switch (command.command_case()) {
    case v1::NodeCommand::kWelcome:
      OnWelcome(command.welcome());
      break;
    case v1::NodeCommand::kStart:
      StartActor(command.start());
      break;
    case v1::NodeCommand::kStop: {
      const auto found = actors_.find(command.stop().actor_id());
      // One that has ended already has been reported; one of another epoch is not the one that is meant.
      if (found == actors_.end() || found->second->epoch() != command.stop().epoch()) break;
      found->second->Stop(absl::Milliseconds(command.stop().grace_ms()));
      break;
    }
    case v1::NodeCommand::kShutdown:
      spdlog::info("the controller has told this node to end");
      Shutdown(absl::Milliseconds(command.shutdown().grace_ms()));
      break;
    default:
      spdlog::warn("a command that this version does not know was left undone");
      break;
  }
}

void Agent::OnWelcome(const v1::NodeWelcome& welcome) {
  run_dir_ = welcome.run_dir();
  if (welcome.beat_interval_ms() > 0) beat_interval_ = absl::Milliseconds(welcome.beat_interval_ms());
  agent_grace_ = welcome.stop_on_controller_loss() ? absl::ZeroDuration() : kAgentGrace;
  if (welcomed_) return;
  welcomed_ = true;
  if (!welcome.stop_on_controller_loss()) {
    spdlog::warn("on_controller_loss: wait is not there yet: this node ends its actors when the controller goes away");
  }
  spdlog::info("joined the cluster; logs go to {}", run_dir_);
  Beat();
}

void Agent::Beat() {
  if (done_) return;
  v1::NodeEvent event;
  event.mutable_beat();
  send_(event);
  loop_.RunAfter(beat_interval_, [this] { Beat(); });
}

void Agent::StartActor(v1::StartActor start) {
  const std::string id = start.actor_id();
  const auto fail = [&](const std::string& message) {
    v1::NodeEvent event;
    event.mutable_start_failed()->set_actor_id(id);
    event.mutable_start_failed()->set_epoch(start.epoch());
    event.mutable_start_failed()->set_message(message);
    spdlog::error("{} did not start: {}", id, message);
    send_(event);
  };
  if (ending_) return fail("the node is ending");
  if (actors_.count(id) > 0) return fail(absl::StrCat("an actor ", id, " still runs here"));
  std::vector<std::string> devices;
  for (int index : start.gpu_indices()) {
    if (index < 0 || index >= static_cast<int>(gpus_.size())) return fail(absl::StrCat("there is no GPU ", index));
    devices.push_back(gpus_[index].uuid());
  }
  // An actor sees its own GPUs and no others; one without any sees none.
  (*start.mutable_env())["CUDA_VISIBLE_DEVICES"] = absl::StrJoin(devices, ",");
  if (start.log_path().empty()) start.set_log_path(absl::StrCat(run_dir_, "/logs/", id, ".log"));
  const std::string record = absl::StrCat(run_dir_, "/actors/", id, ".", start.epoch(), ".json");
  auto process =
      std::make_unique<ActorProcess>(loop_, start, [this, id](const v1::NodeEvent& event) { OnActorEvent(id, event); });
  if (absl::Status status = process->Start(record, agent_grace_); !status.ok()) {
    return fail(std::string(status.message()));
  }
  actors_.emplace(id, std::move(process));
}

void Agent::OnActorEvent(const std::string& actor_id, const v1::NodeEvent& event) {
  if (event.has_exited()) {
    const v1::ActorExited& exited = event.exited();
    spdlog::info("{} (pid {}) ended: code {}, signal {}{}", actor_id, exited.pid(), exited.exit_code(),
                 exited.exit_signal(), exited.asked_to_stop() ? ", as it was asked to" : "");
  } else if (event.has_start_failed()) {
    spdlog::error("{} did not start: {}", actor_id, event.start_failed().message());
  }
  send_(event);
  if (event.has_exited() || event.has_start_failed()) {
    // Later, since the caller is the one to be destroyed.
    loop_.Post([this, gone = std::shared_ptr<ActorProcess>(std::move(actors_[actor_id]))] {});
    actors_.erase(actor_id);
    loop_.Post([this] { FinishIfDone(); });
  }
}

void Agent::Shutdown(absl::Duration grace) {
  ending_ = true;
  for (const auto& [id, actor] : actors_) actor->Stop(grace);
  loop_.Post([this] { FinishIfDone(); });
}

void Agent::FinishIfDone() {
  if (!ending_ || done_ || !actors_.empty()) return;
  done_ = true;
  on_done_();
}

}  // namespace manta::node
