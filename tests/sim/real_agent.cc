#include "tests/sim/real_agent.h"

#include <algorithm>
#include <vector>

namespace manta::sim {
namespace {

v1::ActorReport Of(const std::pair<std::string, uint64_t>& key, int64_t pid) {
  v1::ActorReport report;
  report.set_actor_id(key.first);
  report.set_epoch(key.second);
  report.set_pid(pid);
  return report;
}

}  // namespace

RealAgent::RealAgent(EventLoop& loop, RandomStream& random, Truth& truth, v1::NodeHello hello, DialFn dial)
    : SimHost(loop, random, truth, std::move(hello), std::move(dial)), agent_loop_(EventLoop::Simulated()) {}

RealAgent::~RealAgent() {
  core_.reset();
}

// ---- The agent's process

void RealAgent::Pump() {
  if (!running() || pumping_ || core_ == nullptr) return;
  pumping_ = true;
  agent_loop_->RunFor(loop_.Now() - agent_loop_->Now());
  for (int round = 0; round < 3; ++round) agent_loop_->RunFor(absl::ZeroDuration());
  pumping_ = false;
  if (ended_ && agent_up_) {
    if (auto stream = std::exchange(stream_, nullptr)) stream->CloseAgent();
    core_.reset();
    agent_up_ = false;
    ++agents_;
  }
}

void RealAgent::PumpOn() {
  Pump();
  HostAfter(absl::Milliseconds(100), [this] { PumpOn(); });
}

// A closure of the agent's own loop. One that comes while the agent is stopped is handled once its clock is right
// again.
template <typename What>
void RealAgent::ToAgent(What what) {
  WhenAwake([this, agent = agents_, what = std::move(what)]() mutable {
    agent_loop_->Post([this, agent, what = std::move(what)]() mutable {
      if (agents_ == agent && core_ != nullptr) what(*core_);
    });
    Pump();
  });
}

void RealAgent::OnBoot() {
  shims_.clear();
  records_.clear();
  PumpOn();
  CheckShims();
}

void RealAgent::OnPowerLoss() {
  for (auto& [id, shim] : shims_) {
    for (const auto& [key, worker] : shim.workers) truth_.Ended(key.first, key.second);
  }
  shims_.clear();
  core_.reset();
}

void RealAgent::OnAgentKilled() {
  core_.reset();
  for (auto& [id, shim] : shims_) shim.orphaned_at = loop_.Now();
}

void RealAgent::OnAgentStart() {
  ++attempt_;
  agent_loop_->RunFor(loop_.Now() - agent_loop_->Now());
  node::AgentOptions options;
  options.hello = hello_;
  options.join_timeout = absl::Minutes(30);
  options.controller_address = "head:1";
  node::ProcessPort& processes = *this;
  node::UplinkPort& uplink = *this;
  node::HostPort& host = *this;
  core_ = std::make_unique<node::AgentCore>(*agent_loop_, processes, uplink, host, std::move(options),
                                            [this](const absl::Status&) { ended_ = true; });
  core_->Start();
  Pump();
}

// ---- Shims and workers

node::ShimId RealAgent::StartShim(const node::ShimSpec& spec) {
  const node::ShimId id = next_shim_++;
  shims_[id].spec = spec;
  return id;
}

bool RealAgent::Send(node::ShimId shim, const v1::ShimOrder& order) {
  if (shims_.count(shim) == 0) return false;
  HostAfter(absl::Milliseconds(1), [this, shim, order] { OnOrder(shim, order); });
  return true;
}

void RealAgent::OnOrder(node::ShimId id, const v1::ShimOrder& order) {
  const auto found = shims_.find(id);
  if (found == shims_.end()) return;
  Shim& shim = found->second;
  if (order.has_start()) {
    Begin(id, order.start());
  } else if (order.has_stop()) {
    const Key key{order.stop().actor_id(), order.stop().epoch()};
    const auto worker = shim.workers.find(key);
    if (worker == shim.workers.end()) return;
    worker->second.told_to_stop = true;
    const absl::Duration obeys = absl::Milliseconds(5 + random_.NextBelow(600));
    HostAfter(std::min(obeys, absl::Milliseconds(order.stop().grace_ms())) + absl::Milliseconds(5),
              [this, id, key] { End(id, key, 0, 0, false); });
  } else if (order.has_worker()) {
    const v1::WorkerCommand& worker = order.worker();
    const Key key{worker.actor().actor_id(), worker.actor().epoch()};
    if (worker.order().has_fence() && shim.workers.count(key) > 0) {
      truth_.Fenced(key.first, key.second, worker.order().fence());
    }
  } else if (order.has_lease()) {
    shim.lease_until = loop_.Now() + absl::Milliseconds(order.lease().ttl_ms());
  }
}

void RealAgent::Begin(node::ShimId id, const v1::StartActor& start) {
  const Key key{start.actor_id(), start.epoch()};
  Shim& shim = shims_[id];
  shim.used = true;
  Worker& worker = shim.workers[key];
  worker.pid = next_pid_++;
  truth_.Started({key.first, key.second, name(), {start.gpu_indices().begin(), start.gpu_indices().end()}});
  v1::ActorReport started = Of(key, worker.pid);
  started.mutable_started()->set_pid(worker.pid);
  Tell(id, std::move(started));
  const uint64_t fate = NextFate();
  const absl::Duration loading = absl::Milliseconds(20 + random_.NextBelow(1500));
  if (fate == 0) {
    HostAfter(loading, [this, id, key] { End(id, key, 3, 0, false); });
  } else if (fate > 1) {
    HostAfter(loading, [this, id, key] {
      const auto found = shims_.find(id);
      if (found == shims_.end() || found->second.workers.count(key) == 0) return;
      Worker& ready = found->second.workers[key];
      ready.ready = true;
      v1::ActorReport report = Of(key, ready.pid);
      report.mutable_worker()->mutable_ready()->set_address(key.first + ":1");
      Tell(id, std::move(report));
    });
  }
}

void RealAgent::End(node::ShimId id, const Key& key, int code, int signal, bool fenced) {
  const auto found = shims_.find(id);
  if (found == shims_.end()) return;
  const auto worker = found->second.workers.find(key);
  if (worker == found->second.workers.end()) return;
  v1::ActorReport report = Of(key, worker->second.pid);
  v1::ActorExited& exited = *report.mutable_exited();
  exited.set_actor_id(key.first);
  exited.set_epoch(key.second);
  exited.set_pid(worker->second.pid);
  exited.set_exit_code(code);
  exited.set_exit_signal(signal);
  exited.set_asked_to_stop(worker->second.told_to_stop);
  exited.set_fenced(fenced);
  records_[key] = report;
  found->second.workers.erase(worker);
  truth_.Ended(key.first, key.second);
  Tell(id, std::move(report));
  if (found->second.workers.empty()) {
    shims_.erase(found);
    ToAgent([id](node::AgentCore& core) { core.OnShimGone(id, "ended with its last worker"); });
  }
}

void RealAgent::Tell(node::ShimId id, v1::ActorReport report) {
  const auto found = shims_.find(id);
  if (found == shims_.end() || found->second.orphaned_at != absl::InfiniteFuture()) return;
  v1::ShimReport reports;
  *reports.add_actors() = std::move(report);
  ToAgent([id, reports = std::move(reports)](node::AgentCore& core) { core.OnShim(id, reports); });
}

void RealAgent::KillShim(node::ShimId id) {
  const auto found = shims_.find(id);
  if (found != shims_.end()) {
    for (const auto& [key, worker] : found->second.workers) {
      truth_.Ended(key.first, key.second);
      if (found->second.orphaned_at == absl::InfiniteFuture()) continue;
      // Nobody sees it die: the next agent must find out that it was there, or the head has it started once more.
      v1::ActorReport report = Of(key, worker.pid);
      report.mutable_exited()->set_actor_id(key.first);
      report.mutable_exited()->set_epoch(key.second);
      report.mutable_exited()->set_exit_signal(9);
      records_[key] = std::move(report);
    }
    shims_.erase(found);
  }
  ToAgent([id](node::AgentCore& core) { core.OnShimGone(id, "was killed by signal 9 (Killed)"); });
}

void RealAgent::CheckShims() {
  const absl::Time now = loop_.Now();
  std::vector<std::pair<node::ShimId, Key>> over;
  std::vector<node::ShimId> unused;
  for (const auto& [id, shim] : shims_) {
    const bool orphaned = shim.orphaned_at != absl::InfiniteFuture() && now - shim.orphaned_at >= shim.spec.agent_grace;
    if (orphaned && shim.workers.empty()) unused.push_back(id);
    if (!orphaned && now < shim.lease_until) continue;
    for (const auto& [key, worker] : shim.workers) over.emplace_back(id, key);
  }
  for (const auto& [id, key] : over) End(id, key, -1, 9, true);
  for (const node::ShimId id : unused) shims_.erase(id);
  HostAfter(absl::Milliseconds(250), [this] { CheckShims(); });
}

void RealAgent::Recover(std::function<void(node::Recovered)> done) {
  AgentAfter(absl::Milliseconds(20), [this, done = std::move(done)] {
    node::Recovered recovered;
    for (auto& [id, shim] : shims_) {
      if (shim.workers.empty()) continue;
      shim.orphaned_at = absl::InfiniteFuture();
      node::RecoveredShim& found = recovered.shims.emplace_back();
      found.id = id;
      for (const auto& [key, worker] : shim.workers) {
        v1::ActorReport report = Of(key, worker.pid);
        report.mutable_snapshot()->set_started_unix_ms(1);
        if (worker.ready) report.mutable_snapshot()->mutable_ready()->set_address(key.first + ":1");
        *found.snapshots.add_actors() = std::move(report);
      }
    }
    for (const auto& [key, record] : records_) recovered.exits.push_back(record);
    ToAgent([done, recovered = std::move(recovered)](node::AgentCore&) { done(recovered); });
  });
}

void RealAgent::CrashOne() {
  std::vector<std::pair<node::ShimId, Key>> living;
  for (const auto& [id, shim] : shims_) {
    for (const auto& [key, worker] : shim.workers) living.emplace_back(id, key);
  }
  if (living.empty()) return;
  const auto& [id, key] = living[random_.NextBelow(living.size())];
  if (random_.NextBelow(4) == 0) {
    KillShim(id);
  } else {
    End(id, key, -1, 9, false);
  }
}

void RealAgent::RememberExit(const v1::ActorReport& exit) {
  records_[{exit.actor_id(), exit.epoch()}] = exit;
}
void RealAgent::ForgetExit(const v1::ActorRef& actor) {
  records_.erase({actor.actor_id(), actor.epoch()});
}

// ---- The uplink

void RealAgent::Open() {
  if (auto old = std::exchange(stream_, nullptr)) old->CloseAgent();
  const uint64_t attempt = ++attempt_;
  std::shared_ptr<Stream> stream;
  switch (dial_(*this, &stream)) {
    case Dial::kStream:
      stream_ = stream;
      streams_.push_back(stream);
      std::erase_if(streams_, [](const auto& weak) { return weak.expired(); });
      stream->at_agent = [this, alive = alive_, agent = agents_, attempt](const v1::NodeCommand& command) {
        if (!*alive || agents_ != agent) return;
        ToAgent([this, attempt, command](node::AgentCore& core) {
          if (attempt_ == attempt) core.OnCommand(command);
        });
      };
      stream->agent_lost = [this, alive = alive_, agent = agents_, attempt](const absl::Status& why) {
        if (!*alive || agents_ != agent) return;
        const node::UplinkLoss loss = node::IsRejection(why) ? node::UplinkLoss::kRejected
                                      : link_->cut           ? node::UplinkLoss::kSilent
                                                             : node::UplinkLoss::kHeadGone;
        UplinkDown(attempt, loss, why);
      };
      break;
    case Dial::kRefused:
      AgentAfter(absl::Milliseconds(1), [this, attempt] {
        UplinkDown(attempt, node::UplinkLoss::kHeadGone, absl::UnavailableError("connection refused"));
      });
      break;
    case Dial::kSilence:
      AgentAfter(absl::Seconds(2), [this, attempt] {
        UplinkDown(attempt, node::UplinkLoss::kSilent, absl::DeadlineExceededError("no answer"));
      });
      break;
  }
}

void RealAgent::UplinkDown(uint64_t attempt, node::UplinkLoss loss, const absl::Status& status) {
  ToAgent([this, attempt, loss, status](node::AgentCore& core) {
    if (attempt_ != attempt) return;
    stream_ = nullptr;
    core.OnUplinkDown(loss, status);
  });
}

void RealAgent::Send(const v1::NodeEvent& event) {
  if (stream_ != nullptr) stream_->ToHead(event);
}

void RealAgent::Close() {
  if (stream_ != nullptr) stream_->CloseAgent();
  ++attempt_;
}

void RealAgent::OnStreamStuck() {
  stream_->CloseAgent();
  UplinkDown(attempt_, node::UplinkLoss::kSilent, absl::UnavailableError("keepalive"));
}

}  // namespace manta::sim
