#include "controller/node/agent_core.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "controller/node/agent_core_impl.h"
#include "spdlog/spdlog.h"

namespace manta::node {
namespace {

constexpr absl::Duration kTick = absl::Milliseconds(500);
constexpr absl::Duration kReopen = absl::Seconds(3);  // without an answer: a connection may be stuck in retransmissions
constexpr absl::Duration kFirstBackoff = absl::Milliseconds(100);
constexpr absl::Duration kLongestBackoff = absl::Seconds(1);
constexpr absl::Duration kLastGrace = absl::Seconds(1);  // of actors whose head is gone, from SIGTERM to SIGKILL
constexpr size_t kBeatsInFlight = 64;

// What a stranger says, too, who has come to listen where the head did: another program's server, or another cluster's.
bool MayBeAStranger(const absl::Status& status) {
  return absl::IsUnimplemented(status) || absl::IsUnauthenticated(status) || absl::IsPermissionDenied(status);
}

}  // namespace

AgentCore::Impl::Impl(EventLoop& loop, ProcessPort& processes, UplinkPort& uplink, HostPort& host, AgentOptions options,
                      std::function<void(const absl::Status&)> on_done)
    : loop_(loop),
      processes_(processes),
      uplink_(uplink),
      host_(host),
      options_(std::move(options)),
      on_done_(std::move(on_done)),
      last_heard_(loop.Now()),
      ports_(options_.port_min, options_.port_max, [this](int port) { return host_.PortIsFree(port); }) {}

AgentCore::Impl::~Impl() {
  for (const EventLoop::TimerId timer : {beat_timer_, tick_timer_, connect_timer_}) loop_.Cancel(timer);
  for (const auto& [key, actor] : actors_) loop_.Cancel(actor.kill_timer);
}

// ---- Joining

void AgentCore::Impl::OnRecovered(Recovered recovered) {
  for (const RecoveredShim& shim : recovered.shims) {
    for (const v1::ActorReport& report : shim.snapshots.actors()) {
      const Key key{report.actor_id(), report.epoch()};
      Actor& actor = actors_[key];
      actor.start.set_actor_id(report.actor_id());
      actor.start.set_epoch(report.epoch());
      actor.shim = shim.id;
      actor.started = true;
      actor.pid = report.pid();
      actor.snapshot = report.snapshot();
      newest_[key.first] = std::max(newest_[key.first], key.second);
      spdlog::info("{} (pid {}, epoch {}) runs, and is taken over", key.first, actor.pid, key.second);
    }
  }
  for (v1::ActorReport& report : recovered.exits) {
    const Key key{report.actor_id(), report.epoch()};
    newest_[key.first] = std::max(newest_[key.first], key.second);
    if (actors_.count(key) == 0) Remember(key, std::move(report), /*remember=*/false);
  }
  join_deadline_ = loop_.Now() + (actors_.empty() ? options_.join_timeout : controller_grace_);
  Connect();
  Tick();
}

void AgentCore::Impl::Connect() {
  connect_timer_ = 0;
  if (done_) return;
  last_opened_ = loop_.Now();
  uplink_.Open();
  v1::NodeEvent event;
  *event.mutable_hello() = options_.hello;
  event.mutable_hello()->set_said_at_us(absl::ToUnixMicros(loop_.Now()));
  AddRunning(event.mutable_hello());
  Send(event);
}

void AgentCore::Impl::OnUplinkDown(UplinkLoss loss, const absl::Status& status) {
  const bool was_joined = std::exchange(joined_, false);
  loop_.Cancel(std::exchange(beat_timer_, 0));
  beats_sent_.clear();
  if (done_ || ending_) return;
  // Who has been welcomed, or has actors to lose, waits for the head to come back there; one that comes for the first
  // time has been told a wrong address or token.
  if (loss == UplinkLoss::kRejected && (welcomed_ || !actors_.empty()) && MayBeAStranger(status)) {
    loss = UplinkLoss::kSilent;
  }
  const absl::Time now = loop_.Now();
  lost_since_ = std::min(lost_since_, now);
  // A status without an error: the head has ended the stream, as it does when it is told to end.
  const absl::Status why = Annotate(status.ok() ? absl::UnavailableError("it has ended the connection") : status,
                                    absl::StrCat("the controller at ", options_.controller_address, " is gone"));
  const bool too_long = welcomed_ ? now - lost_since_ >= controller_grace_ : now >= join_deadline_;
  const bool ends_with_head = controller_grace_ == absl::ZeroDuration();
  if (loss == UplinkLoss::kRejected || (welcomed_ && ends_with_head) || too_long) {
    spdlog::error("{}: ending all actors", std::string(why.message()));
    Shutdown(kLastGrace, status.ok() && welcomed_ ? absl::OkStatus() : why);
    return;
  }
  if (was_joined) spdlog::warn("{}: {} actors run on, and wait for it", std::string(why.message()), actors_.size());
  if (loss == UplinkLoss::kHeadGone) lease_until_ = std::max(lease_until_, now + lease_ttl_);
  backoff_ = std::clamp(backoff_ * 2, kFirstBackoff, kLongestBackoff);
  loop_.Cancel(connect_timer_);
  connect_timer_ = loop_.RunAfter(backoff_, [this] { Connect(); });
}

void AgentCore::Impl::OnWelcome(const v1::NodeWelcome& welcome) {
  run_dir_ = welcome.run_dir();
  if (welcome.beat_interval_ms() > 0) beat_interval_ = absl::Milliseconds(welcome.beat_interval_ms());
  if (welcome.lease_ms() > 0) lease_ttl_ = absl::Milliseconds(welcome.lease_ms());
  agent_grace_ = absl::Milliseconds(welcome.agent_grace_ms());
  controller_grace_ = absl::Milliseconds(welcome.controller_grace_ms());
  if (!welcome.worker_token().empty()) host_.SaveWorkerToken(welcome.worker_token());
  spdlog::info("{}; logs go to {}", welcomed_ ? "joined the cluster again" : "joined the cluster", run_dir_);
  welcomed_ = joined_ = true;
  lost_since_ = absl::InfiniteFuture();
  backoff_ = absl::ZeroDuration();
  last_heard_ = loop_.Now();
  lease_until_ = std::max(lease_until_, last_opened_ + lease_ttl_);
  for (const v1::ActorRef& ref : welcome.unwanted()) {
    v1::StopActor stop;
    stop.set_actor_id(ref.actor_id());
    stop.set_epoch(ref.epoch());
    Stop(stop);
  }
  loop_.Cancel(beat_timer_);
  Beat();
}

void AgentCore::Impl::OnCommand(const v1::NodeCommand& command) {
  last_heard_ = loop_.Now();
  switch (command.command_case()) {
    case v1::NodeCommand::kWelcome:
      return OnWelcome(command.welcome());
    case v1::NodeCommand::kStart:
      return Start(command.start());
    case v1::NodeCommand::kStop:
      return Stop(command.stop());
    case v1::NodeCommand::kShutdown:
      spdlog::info("the controller has told this node to end");
      return Shutdown(absl::Milliseconds(command.shutdown().grace_ms()), absl::OkStatus());
    case v1::NodeCommand::kAck:
      return OnBeatAck(command.ack().sequence());
    case v1::NodeCommand::kWorker:
      return Command(command.worker());
    case v1::NodeCommand::kLeasePorts:
      return LeasePorts(command.lease_ports());
    case v1::NodeCommand::kReadLog:
      return host_.ReadLog(command.read_log(), LogPath(command.read_log().actor_id()),
                           [this](const v1::LogChunk& chunk) {
                             v1::NodeEvent event;
                             *event.mutable_log() = chunk;
                             Send(event);
                           });
    case v1::NodeCommand::kReportsAck:
      for (const v1::ActorRef& ref : command.reports_ack().exits()) Acked({ref.actor_id(), ref.epoch()});
      return;
    case v1::NodeCommand::COMMAND_NOT_SET:
      spdlog::warn("a command that this version does not know was left undone");
      return;
  }
}

// ---- Beats and the lease

void AgentCore::Impl::Beat() {
  beat_timer_ = 0;
  if (done_ || !joined_) return;
  v1::NodeEvent event;
  v1::NodeBeat* beat = event.mutable_beat();
  beat->set_sequence(++beat_sequence_);
  for (auto& [key, actor] : actors_) {
    if (!std::exchange(actor.beat_changed, false)) continue;
    v1::ActorReport* report = beat->add_reports();
    report->set_actor_id(key.first);
    report->set_epoch(key.second);
    report->set_pid(actor.pid);
    *report->mutable_worker()->mutable_beat() = actor.snapshot.beat();
  }
  beats_sent_.emplace_back(beat_sequence_, loop_.Now());
  if (beats_sent_.size() > kBeatsInFlight) beats_sent_.pop_front();
  Send(event);
  beat_timer_ = loop_.RunAfter(beat_interval_, [this] { Beat(); });
}

void AgentCore::Impl::OnBeatAck(uint64_t sequence) {
  while (!beats_sent_.empty() && beats_sent_.front().first <= sequence) {
    if (beats_sent_.front().first == sequence) {
      lease_until_ = std::max(lease_until_, beats_sent_.front().second + lease_ttl_);
    }
    beats_sent_.pop_front();
  }
}

void AgentCore::Impl::Tick() {
  if (done_) return;
  const absl::Time now = loop_.Now();
  if (now < lease_until_) {
    std::vector<ShimId> shims;
    for (const auto& [key, actor] : actors_) {
      if (actor.shim != 0) shims.push_back(actor.shim);
    }
    std::sort(shims.begin(), shims.end());
    shims.erase(std::unique(shims.begin(), shims.end()), shims.end());
    for (const ShimId shim : shims) GiveLease(shim);
  }
  const bool waits_for_answer = joined_ || connect_timer_ == 0;
  if (!ending_ && waits_for_answer && now - std::max(last_heard_, last_opened_) >= kReopen) {
    if (std::exchange(joined_, false)) {
      spdlog::warn("the controller at {} has not been heard of for {}", options_.controller_address,
                   absl::FormatDuration(now - last_heard_));
    }
    loop_.Cancel(std::exchange(beat_timer_, 0));
    beats_sent_.clear();
    lost_since_ = std::min(lost_since_, last_heard_);
    const bool too_long = welcomed_ ? now - lost_since_ >= controller_grace_ : now >= join_deadline_;
    if (too_long) {
      OnUplinkDown(UplinkLoss::kSilent, absl::DeadlineExceededError("it does not answer"));
    } else {
      Connect();
    }
  }
  tick_timer_ = loop_.RunAfter(kTick, [this] { Tick(); });
}

void AgentCore::Impl::GiveLease(ShimId shim) {
  const absl::Duration left = lease_until_ - loop_.Now();
  if (left <= absl::ZeroDuration()) return;
  v1::ShimOrder order;
  order.mutable_lease()->set_ttl_ms(absl::ToInt64Milliseconds(left));
  processes_.Send(shim, order);
}

// ---- The end

void AgentCore::Impl::Shutdown(absl::Duration grace, absl::Status why) {
  if (!std::exchange(ending_, true)) end_status_ = std::move(why);
  std::vector<v1::StopActor> stops;
  for (const auto& [key, actor] : actors_) {
    v1::StopActor& stop = stops.emplace_back();
    stop.set_actor_id(key.first);
    stop.set_epoch(key.second);
    stop.set_grace_ms(absl::ToInt64Milliseconds(grace));
  }
  for (const v1::StopActor& stop : stops) Stop(stop);
  loop_.Post([this] { FinishIfDone(); });
}

void AgentCore::Impl::FinishIfDone() {
  if (!ending_ || done_ || !actors_.empty()) return;
  done_ = true;
  on_done_(end_status_);
}

// ---- The public face

AgentCore::AgentCore(EventLoop& loop, ProcessPort& processes, UplinkPort& uplink, HostPort& host, AgentOptions options,
                     std::function<void(const absl::Status&)> on_done)
    : impl_(std::make_unique<Impl>(loop, processes, uplink, host, std::move(options), std::move(on_done))) {}
AgentCore::~AgentCore() = default;

void AgentCore::Start() {
  impl_->processes_.Recover([this](Recovered recovered) { impl_->OnRecovered(std::move(recovered)); });
}
void AgentCore::Shutdown(absl::Duration grace, absl::Status why) {
  impl_->Shutdown(grace, std::move(why));
}
void AgentCore::OnCommand(const v1::NodeCommand& command) {
  impl_->OnCommand(command);
}
void AgentCore::OnUplinkDown(UplinkLoss loss, const absl::Status& status) {
  impl_->OnUplinkDown(loss, status);
}
void AgentCore::OnShim(ShimId shim, const v1::ShimReport& report) {
  impl_->OnShim(shim, report);
}
void AgentCore::OnShimGone(ShimId shim, const std::string& why) {
  impl_->OnShimGone(shim, why);
}
size_t AgentCore::num_actors() const {
  return impl_->actors_.size();
}
bool AgentCore::joined() const {
  return impl_->joined_;
}
absl::Time AgentCore::lease_until() const {
  return impl_->lease_until_;
}

}  // namespace manta::node
