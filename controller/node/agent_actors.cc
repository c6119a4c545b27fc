#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "controller/node/agent_core_impl.h"
#include "spdlog/spdlog.h"

namespace manta::node {
namespace {

constexpr absl::Duration kShimSlack = absl::Seconds(1);   // beyond a stop's grace; then the shim is killed
constexpr absl::Duration kPoolSlack = absl::Seconds(10);  // where others would die with it
constexpr absl::Duration kKeepEnded = absl::Minutes(10);  // to answer a StartActor that is repeated
constexpr size_t kMaxEnded = 10000;

template <typename Message>
Message WithIdentity(const std::pair<std::string, uint64_t>& key) {
  Message message;
  message.set_actor_id(key.first);
  message.set_epoch(key.second);
  return message;
}

// What one zygote can start: the same program, in the same circumstances.
std::string PoolOf(const v1::StartActor& start) {
  v1::StartActor same;
  same.set_executable(start.executable());
  *same.mutable_limits() = start.limits();
  std::vector<std::string> variables;
  for (const auto& [name, value] : start.env()) {
    if (!absl::StartsWith(name, "MANTA_") && name != "CUDA_VISIBLE_DEVICES") {
      variables.push_back(absl::StrCat(name, "=", value));
    }
  }
  std::sort(variables.begin(), variables.end());
  return absl::StrCat(same.SerializeAsString(), absl::StrJoin(variables, std::string(1, '\0')));
}

}  // namespace

// ---- Orders

void AgentCore::Impl::Start(v1::StartActor start) {
  const Key key{start.actor_id(), start.epoch()};
  if (const auto ended = ended_.find(key); ended != ended_.end()) return Tell(ended->second.report);
  if (const auto running = actors_.find(key); running != actors_.end()) return TellState(key, running->second);
  if (ending_) return RetireUnstarted(key, "the node is ending");
  // Sent before the lease ran out, read after (this agent was stopped, or cut off): its place may be another's by now.
  if (loop_.Now() >= lease_until_) return RetireUnstarted(key, "this node's lease has run out");
  uint64_t& newest = newest_[key.first];
  if (newest > key.second) {
    return RetireUnstarted(key, absl::StrCat("epoch ", newest, " of it has been here already"));
  }
  newest = key.second;
  if (absl::Status status = Prepare(&start); !status.ok()) {
    return RetireUnstarted(key, std::string(status.message()));
  }
  EndOlder(key);
  Actor& actor = actors_[key];
  actor.start = std::move(start);
  actor.waits = std::any_of(actors_.begin(), actors_.end(), [&](const auto& other) {
    return other.first.first == key.first && other.first.second < key.second;
  });
  if (!actor.waits) Launch(actor);
}

// Fills in what the node knows: devices, log, and what tells a worker who it is.
absl::Status AgentCore::Impl::Prepare(v1::StartActor* start) const {
  std::vector<std::string> devices;
  for (const int index : start->gpu_indices()) {
    const auto& gpus = options_.hello.gpus();
    const auto gpu = std::find_if(gpus.begin(), gpus.end(), [index](const v1::Gpu& g) { return g.index() == index; });
    if (gpu == gpus.end()) return absl::NotFoundError(absl::StrCat("there is no GPU ", index));
    devices.push_back(gpu->uuid());
  }
  auto& env = *start->mutable_env();
  // An actor sees its own GPUs and no others; one without any sees none.
  env["CUDA_VISIBLE_DEVICES"] = absl::StrJoin(devices, ",");
  env["MANTA_ACTOR_ID"] = start->actor_id();
  env["MANTA_EPOCH"] = absl::StrCat(start->epoch());
  env["MANTA_CONTROLLER"] = options_.controller_address;
  const std::string& address = options_.hello.address();  // of a node that others reach: its workers listen there too
  if (!address.empty() && address != "127.0.0.1") {
    env["MANTA_LISTEN"] = absl::StrContains(address, ':') && address[0] != '[' ? absl::StrCat("[", address, "]:0")
                                                                               : absl::StrCat(address, ":0");
  }
  if (!options_.token_file.empty()) env["MANTA_TOKEN_FILE"] = options_.token_file;
  if (start->log_path().empty()) start->set_log_path(LogPath(start->actor_id()));
  return absl::OkStatus();
}

void AgentCore::Impl::EndOlder(const Key& key) {
  std::vector<Key> older;
  for (auto other = actors_.lower_bound({key.first, 0}); other != actors_.end() && other->first < key; ++other) {
    older.push_back(other->first);
  }
  for (const Key& old : older) {
    spdlog::warn("{}: epoch {} still runs and is ended, for epoch {} is to start", key.first, old.second, key.second);
    auto stop = WithIdentity<v1::StopActor>(old);
    Stop(stop);
  }
}

void AgentCore::Impl::Launch(Actor& actor) {
  actor.waits = false;
  const Key key{actor.start.actor_id(), actor.start.epoch()};
  v1::ShimOrder order;
  *order.mutable_start() = actor.start;
  if (actor.start.prefork() && !actor.retried) {
    const auto pool = pools_.find(PoolOf(actor.start));
    if (pool != pools_.end() && processes_.Send(pool->second, order)) {
      actor.shim = pool->second;
      return GiveLease(actor.shim);
    }
  }
  const std::string name = absl::StrCat(absl::StrReplaceAll(key.first, {{"/", "_"}}), ".", key.second);
  if (actor.retried) order.mutable_start()->set_prefork(false);
  actor.shim = processes_.StartShim({.name = name, .agent_grace = agent_grace_});
  if (!processes_.Send(actor.shim, order)) {
    processes_.KillShim(actor.shim);
    return RetireUnstarted(key, "its arguments and environment are too long, or no shim can be started");
  }
  if (order.start().prefork()) pools_[PoolOf(actor.start)] = actor.shim;
  GiveLease(actor.shim);
}

void AgentCore::Impl::Stop(const v1::StopActor& stop) {
  const Key key{stop.actor_id(), stop.epoch()};
  const auto found = actors_.find(key);
  if (found == actors_.end()) {
    const auto ended = ended_.find(key);
    if (ended != ended_.end()) return Tell(ended->second.report);
    // Its start has never arrived, and must not be obeyed later.
    return RetireUnstarted(key, "it was stopped before it was started");
  }
  Actor& actor = found->second;
  actor.asked_to_stop = true;
  if (actor.waits) return RetireUnstarted(key, "it was stopped before it was started");
  const absl::Duration grace = absl::Milliseconds(stop.grace_ms());
  v1::ShimOrder order;
  *order.mutable_stop() = stop;
  processes_.Send(actor.shim, order);
  loop_.Cancel(actor.kill_timer);
  const absl::Duration slack = ShimIsShared(actor.shim, key) ? kPoolSlack : kShimSlack;
  actor.kill_timer = loop_.RunAfter(grace + slack, [this, shim = actor.shim] { processes_.KillShim(shim); });
}

bool AgentCore::Impl::ShimIsShared(ShimId shim, const Key& besides) const {
  return std::any_of(actors_.begin(), actors_.end(),
                     [&](const auto& other) { return other.second.shim == shim && other.first != besides; });
}

void AgentCore::Impl::Command(const v1::WorkerCommand& command) {
  const auto found = actors_.find({command.actor().actor_id(), command.actor().epoch()});
  const bool runs = found != actors_.end() && found->second.shim != 0;
  if (command.order().has_stacks()) {
    const auto answer = [this, actor = command.actor()](const std::string& text) {
      v1::NodeEvent event;
      *event.mutable_stacks()->mutable_actor() = actor;
      event.mutable_stacks()->set_text(text);
      Send(event);
    };
    if (!runs || found->second.pid <= 0) return answer("it does not run\n");
    // Before the order goes out: what the worker then writes into its log is part of the answer.
    host_.DumpStacks(found->second.pid, LogPath(command.actor().actor_id()), answer);
  }
  if (!runs) return;
  v1::ShimOrder order;
  *order.mutable_worker() = command;
  processes_.Send(found->second.shim, order);
}

void AgentCore::Impl::LeasePorts(const v1::LeasePorts& request) {
  v1::NodeEvent event;
  v1::PortsLeased* reply = event.mutable_ports();
  reply->set_id(request.id());
  const Key owner{request.owner().actor_id(), request.owner().epoch()};
  const auto ports = ports_.Lease(owner, request.count(), loop_.Now());
  if (ports.ok()) {
    reply->mutable_ports()->Assign(ports->begin(), ports->end());
  } else {
    reply->set_error(std::string(ports.status().message()));
  }
  Send(event);
}

// ---- What shims say

void AgentCore::Impl::OnShim(ShimId shim, const v1::ShimReport& report) {
  for (const v1::ActorReport& actor : report.actors()) OnReport(shim, actor);
}

void AgentCore::Impl::OnReport(ShimId shim, const v1::ActorReport& report) {
  const Key key{report.actor_id(), report.epoch()};
  const auto found = actors_.find(key);
  if (found == actors_.end() || found->second.shim != shim) return;
  Actor& actor = found->second;
  switch (report.report_case()) {
    case v1::ActorReport::kStarted:
      actor.started = true;
      actor.pid = report.pid();
      return Tell(report);
    case v1::ActorReport::kExited: {
      v1::ActorReport exit = report;
      if (actor.asked_to_stop) exit.mutable_exited()->set_asked_to_stop(true);
      return Retire(key, std::move(exit), /*remember=*/false);  // the shim has written it down
    }
    case v1::ActorReport::kStartFailed:
      return Retire(key, report, /*remember=*/true);
    case v1::ActorReport::kWorker:
      if (report.worker().has_beat()) {
        *actor.snapshot.mutable_beat() = report.worker().beat();
        actor.beat_changed = true;  // it goes with the node's
        return;
      }
      if (report.worker().has_ready()) *actor.snapshot.mutable_ready() = report.worker().ready();
      return Tell(report);
    case v1::ActorReport::kSnapshot:
    case v1::ActorReport::REPORT_NOT_SET:
      return;
  }
}

void AgentCore::Impl::OnShimGone(ShimId shim, const std::string& why) {
  for (auto pool = pools_.begin(); pool != pools_.end();) {
    pool = pool->second == shim ? pools_.erase(pool) : std::next(pool);
  }
  std::vector<Key> keys;
  for (const auto& [key, actor] : actors_) {
    if (actor.shim == shim) keys.push_back(key);
  }
  for (const Key& key : keys) {
    Actor& actor = actors_.at(key);
    if (!actor.started && !actor.asked_to_stop && actor.start.prefork() && !std::exchange(actor.retried, true)) {
      Launch(actor);  // the pool ended as the order was on its way to it
      continue;
    }
    if (!actor.started) {
      RetireUnstarted(key, absl::StrCat("its shim ", why));
      continue;
    }
    auto report = WithIdentity<v1::ActorReport>(key);
    report.set_pid(actor.pid);
    v1::ActorExited* exited = report.mutable_exited();
    *exited = WithIdentity<v1::ActorExited>(key);
    exited->set_pid(actor.pid);
    exited->set_exit_code(-1);
    exited->set_exit_signal(9);
    for (std::string& line : host_.LastLines(LogPath(key.first))) exited->add_last_lines(std::move(line));
    if (exited->last_lines_size() >= 50)
      exited->mutable_last_lines()->DeleteSubrange(0, exited->last_lines_size() - 49);
    exited->add_last_lines(
        absl::StrCat("manta-node: the shim of ", key.first, " ", why, ", and its worker was killed with it"));
    exited->set_asked_to_stop(actor.asked_to_stop);
    Retire(key, std::move(report), /*remember=*/true);
  }
}

// ---- Ends

void AgentCore::Impl::RetireUnstarted(const Key& key, const std::string& message) {
  auto report = WithIdentity<v1::ActorReport>(key);
  *report.mutable_start_failed() = WithIdentity<v1::ActorStartFailed>(key);
  report.mutable_start_failed()->set_message(message);
  Retire(key, std::move(report), /*remember=*/true);
}

// The last word about an actor: from here on it is one that has ended. `remember`: no file holds it yet.
void AgentCore::Impl::Retire(const Key& key, v1::ActorReport report, bool remember) {
  if (report.has_exited()) {
    const v1::ActorExited& exited = report.exited();
    spdlog::info("{} (pid {}) ended: code {}, signal {}{}{}", key.first, exited.pid(), exited.exit_code(),
                 exited.exit_signal(), exited.asked_to_stop() ? ", as it was asked to" : "",
                 exited.fenced() ? ", its lease had run out" : "");
  } else {
    spdlog::error("{} did not start: {}", key.first, report.start_failed().message());
  }
  if (const auto found = actors_.find(key); found != actors_.end()) {
    loop_.Cancel(found->second.kill_timer);
    actors_.erase(found);
  }
  ports_.Release(key, loop_.Now());
  Tell(report);
  Remember(key, std::move(report), remember);
  // Whom it was in the way of:
  for (auto& [other, actor] : actors_) {
    if (!actor.waits || other.first != key.first) continue;
    const auto first = actors_.lower_bound({other.first, 0});
    if (first->first == other) {
      Launch(actor);
      break;
    }
  }
  loop_.Post([this] { FinishIfDone(); });
}

void AgentCore::Impl::Remember(const Key& key, v1::ActorReport report, bool remember) {
  const absl::Time now = loop_.Now();
  if (remember) host_.RememberExit(report);
  ended_[key] = {std::move(report), now};
  if (ended_.size() % 64 != 0 && ended_.size() <= kMaxEnded) return;
  std::erase_if(ended_, [&](const auto& old) { return old.second.acked && now - old.second.when > kKeepEnded; });
  while (ended_.size() > kMaxEnded) {
    auto victim = std::min_element(ended_.begin(), ended_.end(), [](const auto& a, const auto& b) {
      return std::make_pair(!a.second.acked, a.second.when) < std::make_pair(!b.second.acked, b.second.when);
    });
    host_.ForgetExit(WithIdentity<v1::ActorRef>(victim->first));
    ended_.erase(victim);
  }
  if (newest_.size() <= 4 * kMaxEnded) return;
  std::erase_if(newest_, [this](const auto& entry) {  // actors that nothing is known of any more
    const auto running = actors_.lower_bound({entry.first, 0});
    const auto ended = ended_.lower_bound({entry.first, 0});
    return (running == actors_.end() || running->first.first != entry.first) &&
           (ended == ended_.end() || ended->first.first != entry.first);
  });
}

void AgentCore::Impl::Acked(const Key& key) {
  host_.ForgetExit(WithIdentity<v1::ActorRef>(key));
  if (const auto found = ended_.find(key); found != ended_.end()) found->second.acked = true;
}

// ---- Telling the head

void AgentCore::Impl::Tell(const v1::ActorReport& report) {
  v1::NodeEvent event;
  *event.mutable_report() = report;
  Send(event);
}

void AgentCore::Impl::TellState(const Key& key, const Actor& actor) {
  if (!actor.started) return;
  auto report = WithIdentity<v1::ActorReport>(key);
  report.set_pid(actor.pid);
  auto started = WithIdentity<v1::ActorStarted>(key);
  started.set_pid(actor.pid);
  *report.mutable_started() = started;
  Tell(report);
  if (!actor.snapshot.has_ready()) return;
  *report.mutable_worker()->mutable_ready() = actor.snapshot.ready();
  Tell(report);
}

void AgentCore::Impl::AddRunning(v1::NodeHello* hello) const {
  for (const auto& [key, actor] : actors_) {
    v1::ActorReport* report = hello->add_running();
    *report = WithIdentity<v1::ActorReport>(key);
    report->set_pid(actor.pid);
    *report->mutable_snapshot() = actor.snapshot;
  }
  for (const auto& [key, ended] : ended_) {
    if (!ended.acked) *hello->add_running() = ended.report;
  }
}

std::string AgentCore::Impl::LogPath(const std::string& actor_id) const {
  const auto newest = actors_.lower_bound({actor_id, 0});
  if (newest != actors_.end() && newest->first.first == actor_id && !newest->second.start.log_path().empty()) {
    return newest->second.start.log_path();
  }
  return absl::StrCat(run_dir_, "/logs/", absl::StrReplaceAll(actor_id, {{"/", "_"}}), ".log");
}

}  // namespace manta::node
