#include "tests/sim/fake_agent.h"

#include <algorithm>

namespace manta::sim {

void FakeAgent::OnBoot() {
  workers_.clear();
  shutting_down_ = false;
  lease_until_ = last_contact_ = absl::InfinitePast();
  LeaseCheck();
}

void FakeAgent::OnAgentStart() {
  orphaned_at_ = absl::InfiniteFuture();
  Connect();
}

void FakeAgent::OnPowerLoss() {
  for (auto& [key, worker] : workers_) {
    if (std::exchange(worker.lives, false)) truth_.Ended(key.first, key.second);
  }
}

void FakeAgent::OnStreamStuck() {
  stream_->CloseAgent();
  Disconnected();
}

void FakeAgent::CrashOne() {
  std::vector<Key> living;
  for (const auto& [key, worker] : workers_) {
    if (worker.lives) living.push_back(key);
  }
  if (!living.empty()) End(living[random_.NextBelow(living.size())], -1, 9, false);
}

// ---- The stream

// What it says first: what it is, and what runs there.
v1::NodeEvent FakeAgent::Hello() const {
  v1::NodeEvent event;
  v1::NodeHello& hello = *event.mutable_hello();
  hello = hello_;
  for (const auto& [key, worker] : workers_) {
    if (!worker.lives && worker.acked) continue;
    v1::ActorReport& report = *hello.add_running();
    report.set_actor_id(key.first);
    report.set_epoch(key.second);
    report.set_pid(worker.pid);
    if (!worker.lives) {
      *report.mutable_snapshot()->mutable_exited() = worker.exited;
    } else {
      report.mutable_snapshot()->set_started_unix_ms(1);
      if (worker.ready) report.mutable_snapshot()->mutable_ready()->set_address(key.first + ":1");
    }
  }
  return event;
}

void FakeAgent::Connect() {
  if (!running() || stream_ != nullptr || shutting_down_) return;
  hello_sent_ = loop_.Now();
  std::shared_ptr<Stream> stream;
  switch (dial_(*this, &stream)) {
    case Dial::kStream:
      stream_ = stream;
      streams_.push_back(stream);
      std::erase_if(streams_, [](const auto& weak) { return weak.expired(); });
      welcomed_ = false;
      sent_.clear();
      stream->ToHead(Hello());
      stream->at_agent = [this, alive = alive_, agent = agents_,
                          stream = stream.get()](const v1::NodeCommand& command) {
        if (!*alive || agents_ != agent) return;
        if (!frozen_) {
          if (agent_up_ && stream_.get() == stream) OnCommand(command);
          return;
        }
        WhenAwake([this, stream, command] {
          if (stream_.get() == stream) OnCommand(command);
        });
      };
      stream->agent_lost = [this, alive = alive_, agent = agents_, stream = stream.get()](const absl::Status&) {
        if (!*alive || agents_ != agent) return;
        WhenAwake([this, stream] {
          if (stream_.get() == stream) Disconnected();
        });
      };
      return;
    case Dial::kRefused:
      // The head is dead, its host is not.
      if (waits_ && loop_.Now() - last_contact_ < controller_grace_) SetLease(loop_.Now() + lease_);
      break;
    case Dial::kSilence:
      break;
  }
  AgentAfter(absl::Milliseconds(300 + random_.NextBelow(400)), [this] { Connect(); });
}

void FakeAgent::Disconnected() {
  stream_ = nullptr;
  if (shutting_down_) return;
  AgentAfter(absl::Milliseconds(10 + random_.NextBelow(200)), [this] { Connect(); });
}

void FakeAgent::Report(const Key& key, v1::ActorReport report) {
  if (stream_ == nullptr || !agent_up_) return;
  report.set_actor_id(key.first);
  report.set_epoch(key.second);
  report.set_pid(workers_[key].pid);
  v1::NodeEvent event;
  *event.mutable_report() = std::move(report);
  stream_->ToHead(std::move(event));
}

void FakeAgent::OnCommand(const v1::NodeCommand& command) {
  switch (command.command_case()) {
    case v1::NodeCommand::kWelcome: {
      const v1::NodeWelcome& welcome = command.welcome();
      lease_ = absl::Milliseconds(welcome.lease_ms());
      agent_grace_ = absl::Milliseconds(welcome.agent_grace_ms());
      controller_grace_ = absl::Milliseconds(welcome.controller_grace_ms());
      waits_ = welcome.controller_grace_ms() > 0;
      welcomed_ = true;
      last_contact_ = loop_.Now();
      SetLease(hello_sent_ + lease_);
      for (const v1::ActorRef& ref : welcome.unwanted()) OnStop(ref.actor_id(), ref.epoch(), absl::ZeroDuration());
      Beat();
      break;
    }
    case v1::NodeCommand::kAck: {
      last_contact_ = loop_.Now();
      const auto sent = sent_.find(command.ack().sequence());
      if (sent == sent_.end()) break;
      SetLease(sent->second + lease_);
      sent_.erase(sent_.begin(), std::next(sent));
      break;
    }
    case v1::NodeCommand::kStart:
      OnStart(command.start());
      break;
    case v1::NodeCommand::kStop:
      OnStop(command.stop().actor_id(), command.stop().epoch(), absl::Milliseconds(command.stop().grace_ms()));
      break;
    case v1::NodeCommand::kWorker:
      // By way of the shim; another agent may have come by then.
      if (command.worker().order().has_fence()) {
        HostAfter(absl::Milliseconds(1), [this, worker = command.worker()] {
          truth_.Fenced(worker.actor().actor_id(), worker.actor().epoch(), worker.order().fence());
        });
      }
      break;
    case v1::NodeCommand::kReportsAck:
      for (const v1::ActorRef& ref : command.reports_ack().exits()) {
        const auto found = workers_.find({ref.actor_id(), ref.epoch()});
        if (found != workers_.end()) found->second.acked = true;
      }
      break;
    case v1::NodeCommand::kLeasePorts: {
      v1::NodeEvent event;
      event.mutable_ports()->set_id(command.lease_ports().id());
      for (int i = 0; i < command.lease_ports().count(); ++i) {
        event.mutable_ports()->add_ports(static_cast<int>(20000 + random_.NextBelow(10000)));
      }
      stream_->ToHead(std::move(event));
      break;
    }
    case v1::NodeCommand::kShutdown:
      shutting_down_ = true;
      EndAll(false);
      AgentAfter(absl::Milliseconds(50), [this] {
        if (auto stream = std::exchange(stream_, nullptr)) stream->CloseAgent();
        agent_up_ = false;
        ended_ = true;
        ++agents_;
      });
      break;
    default:
      break;
  }
}

// ---- Workers

void FakeAgent::OnStart(const v1::StartActor& start) {
  const Key key{start.actor_id(), start.epoch()};
  if (const auto known = workers_.find(key); known != workers_.end()) {
    v1::ActorReport report;
    if (!known->second.lives) {
      *report.mutable_exited() = known->second.exited;
    } else if (known->second.ready) {
      report.mutable_worker()->mutable_ready()->set_address(key.first + ":1");
    } else {
      report.mutable_started()->set_pid(known->second.pid);
    }
    return Report(key, std::move(report));
  }
  if (loop_.Now() >= lease_until_) return;  // the order is of a membership that is over
  Worker& worker = workers_[key];
  worker.start = start;
  worker.lives = true;
  worker.pid = next_pid_++;
  truth_.Started({key.first, key.second, name(), {start.gpu_indices().begin(), start.gpu_indices().end()}});
  v1::ActorReport report;
  report.mutable_started()->set_pid(worker.pid);
  Report(key, std::move(report));
  const uint64_t fate = NextFate();
  const absl::Duration loading = absl::Milliseconds(20 + random_.NextBelow(1500));
  if (fate == 0) {
    HostAfter(loading, [this, key] { End(key, 3, 0, false); });
  } else if (fate > 1) {
    HostAfter(loading, [this, key] {
      Worker& ready = workers_[key];
      if (!ready.lives) return;
      ready.ready = true;
      WhenAwake([this, key] {
        v1::ActorReport now;
        now.mutable_worker()->mutable_ready()->set_address(key.first + ":1");
        Report(key, std::move(now));
      });
    });
  }
}

void FakeAgent::OnStop(const std::string& actor_id, uint64_t epoch, absl::Duration grace) {
  const Key key{actor_id, epoch};
  const auto found = workers_.find(key);
  if (found == workers_.end() || !found->second.lives) {
    Worker& worker = workers_[key];  // never started here, or over: it never will be
    if (worker.exited.actor_id().empty()) {
      worker.exited.set_actor_id(actor_id);
      worker.exited.set_epoch(epoch);
      worker.exited.set_asked_to_stop(true);
    }
    v1::ActorReport report;
    *report.mutable_exited() = worker.exited;
    return Report(key, std::move(report));
  }
  found->second.told_to_stop = true;
  const absl::Duration obeys = absl::Milliseconds(5 + random_.NextBelow(600));
  HostAfter(std::min(obeys, grace) + absl::Milliseconds(5), [this, key] { End(key, 0, 0, false); });
}

void FakeAgent::End(const Key& key, int code, int signal, bool fenced) {
  Worker& worker = workers_[key];
  if (!std::exchange(worker.lives, false)) return;
  truth_.Ended(key.first, key.second);
  worker.exited.set_actor_id(key.first);
  worker.exited.set_epoch(key.second);
  worker.exited.set_pid(worker.pid);
  worker.exited.set_exit_code(code);
  worker.exited.set_exit_signal(signal);
  worker.exited.set_asked_to_stop(worker.told_to_stop);
  worker.exited.set_fenced(fenced);
  worker.exited.add_last_lines("its last line");
  WhenAwake([this, key] {
    v1::ActorReport report;
    *report.mutable_exited() = workers_[key].exited;
    Report(key, std::move(report));
  });
}

void FakeAgent::EndAll(bool fenced) {
  std::vector<Key> living;
  for (const auto& [key, worker] : workers_) {
    if (worker.lives) living.push_back(key);
  }
  for (const Key& key : living) End(key, -1, 9, fenced);
}

// ---- Beats and leases

void FakeAgent::Beat() {
  if (stream_ == nullptr) return;
  v1::NodeEvent event;
  event.mutable_beat()->set_sequence(++beat_);
  sent_[beat_] = loop_.Now();
  if (sent_.size() > 64) sent_.erase(sent_.begin());
  if (beat_ % 4 == 0) {
    for (const auto& [key, worker] : workers_) {
      if (!worker.ready || !worker.lives) continue;
      v1::ActorReport& report = *event.mutable_beat()->add_reports();
      report.set_actor_id(key.first);
      report.set_epoch(key.second);
      report.mutable_worker()->mutable_beat()->set_completed(beat_);
    }
  }
  stream_->ToHead(std::move(event));
  AgentAfter(absl::Seconds(1), [this, stream = stream_.get()] {
    if (stream_.get() == stream) Beat();
  });
}

void FakeAgent::SetLease(absl::Time until) {
  lease_until_ = std::max(lease_until_, until);
}

// The shims' own clocks: they end what they hold whatever the agent does.
void FakeAgent::LeaseCheck() {
  const bool orphaned = loop_.Now() - orphaned_at_ >= agent_grace_;
  if (loop_.Now() >= lease_until_ || orphaned) EndAll(true);
  HostAfter(absl::Milliseconds(250), [this] { LeaseCheck(); });
}

}  // namespace manta::sim
