#include "tests/sim/sim_host.h"

namespace manta::sim {

void SimHost::Boot() {
  ++boots_;
  ++agents_;
  hello_.set_incarnation(1 + random_.NextBelow(1ull << 60));
  host_up_ = agent_up_ = true;
  frozen_ = ended_ = false;
  inbox_.clear();
  OnBoot();
  OnAgentStart();
}

void SimHost::Reboot(absl::Duration down) {
  if (!host_up_ || ended_) return;
  OnPowerLoss();
  host_up_ = agent_up_ = frozen_ = false;
  ++agents_;
  inbox_.clear();
  // Its peers hear nothing of it: a stream ends when a packet is answered by the host that knows it no more.
  if (stream_ != nullptr) stream_->at_agent = nullptr, stream_->agent_lost = nullptr;
  auto stream = std::exchange(stream_, nullptr);
  loop_.RunAfter(down, [this, alive = alive_, boot = boots_, stream] {
    if (stream != nullptr) stream->CloseAgent();
    if (*alive && boots_ == boot) Boot();
  });
}

void SimHost::KillAgent(absl::Duration down) {
  if (!agent_up_ || ended_) return;
  agent_up_ = frozen_ = false;
  ++agents_;
  inbox_.clear();
  if (auto stream = std::exchange(stream_, nullptr)) stream->CloseAgent();
  OnAgentKilled();
  HostAfter(down, [this] {
    if (agent_up_) return;
    agent_up_ = true;
    ++agents_;
    OnAgentStart();
  });
}

void SimHost::Freeze(absl::Duration time) {
  if (!running()) return;
  frozen_ = true;
  HostAfter(time, [this, agent = agents_] {
    if (agents_ != agent || !frozen_) return;
    frozen_ = false;
    OnThaw();
    for (auto& what : std::exchange(inbox_, {})) WhenAwake(std::move(what));
  });
}

void SimHost::CutCable(absl::Duration time) {
  if (link_->cut) return;
  link_->cut = true;
  // A stream that is silent for long is given up.
  if (stream_ != nullptr && time > absl::Seconds(6)) {
    loop_.RunAfter(absl::Seconds(6), [this, alive = alive_, weak = std::weak_ptr<Stream>(stream_)] {
      const auto stream = weak.lock();
      if (!*alive || stream == nullptr || !link_->cut || stream != stream_) return;
      WhenAwake([this, stream] {
        if (stream == stream_) OnStreamStuck();
      });
    });
  }
  loop_.RunAfter(time, [this, alive = alive_] {
    if (!*alive) return;
    link_->cut = false;
    for (const auto& weak : std::exchange(streams_, {})) {
      if (const auto stream = weak.lock()) {
        stream->Healed();
        streams_.push_back(stream);
      }
    }
  });
}

}  // namespace manta::sim
