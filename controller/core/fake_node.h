// A fake agent for tests of the head's logic: it records what it is told, starts every actor at once under a new pid
// and, unless told otherwise, has it announce itself, beat, and end when asked to. For tests only.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/base/event_loop.h"
#include "controller/core/core.h"
#include "manta/v1/node.pb.h"

namespace manta::controller::core {

class FakeNode : public AgentPort, public std::enable_shared_from_this<FakeNode> {
 public:
  using Key = std::pair<std::string, uint64_t>;

  FakeNode(EventLoop& loop, std::string name, int cpu_slots, int num_gpus = 0) : loop_(loop) {
    hello.set_node(std::move(name));
    hello.set_incarnation(7);
    hello.set_cpu_slots(cpu_slots);
    for (int i = 0; i < num_gpus; ++i) hello.add_gpus()->set_index(i);
  }

  // Also again, of another core: what runs is told.
  absl::Status Join(Core& core) {
    core_ = &core;
    v1::NodeHello said = hello;
    for (const auto& [key, actor] : actors) {
      v1::ActorReport& report = *said.add_running();
      report.set_actor_id(key.first);
      report.set_epoch(key.second);
      report.set_pid(actor.pid);
      if (actor.lives) {
        report.mutable_snapshot()->set_started_unix_ms(1);
        if (actor.ready) report.mutable_snapshot()->mutable_ready()->set_address(key.first + ":1");
      } else {
        *report.mutable_snapshot()->mutable_exited() = actor.exited;
      }
    }
    const absl::StatusOr<uint64_t> joined = core.NodeJoined(said, shared_from_this());
    if (!joined.ok()) return joined.status();
    session_ = *joined;
    open = true;
    Beat(session_);
    return absl::OkStatus();
  }
  // Its stream ends.
  void Disconnect(bool left = false) {
    open = false;
    core_->NodeDisconnected(session_, absl::UnavailableError("its stream has ended"), left);
  }
  // The core is gone without a word.
  void Forsake() {
    open = false;
    core_ = nullptr;
  }

  void Send(const v1::NodeCommand& command) override {
    commands.push_back(command);
    if (command.has_start()) {
      started.push_back(command.start());
      if (starts) loop_.Post([self = shared_from_this(), start = command.start()] { self->Start(start); });
    } else if (command.has_stop()) {
      stopped.push_back(command.stop());
      if (!obeys) return;
      loop_.Post([self = shared_from_this(), stop = command.stop()] {
        self->Exit(stop.actor_id(), stop.epoch(), 0, 0, true);
      });
    } else if (command.has_lease_ports()) {
      loop_.Post([self = shared_from_this(), lease = command.lease_ports()] {
        v1::NodeEvent event;
        event.mutable_ports()->set_id(lease.id());
        for (int i = 0; i < lease.count(); ++i) event.mutable_ports()->add_ports(self->next_port_++);
        self->Tell(event);
      });
    } else if (command.has_welcome()) {
      for (const auto& ref : command.welcome().unwanted()) {
        unwanted.push_back(ref.actor_id());
        loop_.Post([self = shared_from_this(), ref] { self->Exit(ref.actor_id(), ref.epoch(), -1, 9, true); });
      }
    } else if (command.has_shutdown()) {
      shut_down = true;
      loop_.Post([self = shared_from_this()] {
        if (self->open) self->Disconnect(true);
      });
    }
  }
  void Close(const absl::Status& status) override {
    closed = status;
    open = false;
  }

  void Start(const v1::StartActor& start) {
    Actor& actor = actors[{start.actor_id(), start.epoch()}];
    if (actor.pid == 0) {
      actor.pid = next_pid_++;
      actor.lives = true;
      ++starts_of[start.actor_id()];
    }
    v1::ActorReport report;
    report.mutable_started()->set_pid(actor.pid);
    Report(start.actor_id(), start.epoch(), report);
    if (announces) Announce(start.actor_id(), start.epoch());
  }
  void Announce(const std::string& actor_id, uint64_t epoch) {
    actors[{actor_id, epoch}].ready = true;
    v1::ActorReport report;
    report.mutable_worker()->mutable_ready()->set_address(actor_id + ":1");
    Report(actor_id, epoch, report);
  }
  void Exit(const std::string& actor_id, uint64_t epoch, int code, int signal, bool asked = false) {
    Actor& actor = actors[{actor_id, epoch}];
    actor.lives = false;
    actor.exited.set_actor_id(actor_id);
    actor.exited.set_epoch(epoch);
    actor.exited.set_exit_code(code);
    actor.exited.set_exit_signal(signal);
    actor.exited.set_asked_to_stop(asked);
    actor.exited.clear_last_lines();
    actor.exited.add_last_lines("its last line");
    v1::ActorReport report;
    *report.mutable_exited() = actor.exited;
    Report(actor_id, epoch, report);
  }
  void Report(const std::string& actor_id, uint64_t epoch, v1::ActorReport report) {
    report.set_actor_id(actor_id);
    report.set_epoch(epoch);
    report.set_pid(actors[{actor_id, epoch}].pid);
    v1::NodeEvent event;
    *event.mutable_report() = std::move(report);
    Tell(event);
  }
  void Tell(const v1::NodeEvent& event) {
    if (open) core_->OnNodeEvent(session_, event);
  }
  // The newest epoch of an actor that was started here.
  uint64_t EpochOf(const std::string& actor_id) const {
    uint64_t newest = 0;
    for (const auto& start : started) {
      if (start.actor_id() == actor_id) newest = std::max<uint64_t>(newest, start.epoch());
    }
    return newest;
  }
  template <typename Has>
  int Count(Has has) const {
    return static_cast<int>(std::count_if(commands.begin(), commands.end(), has));
  }

  struct Actor {
    int64_t pid = 0;
    bool lives = false, ready = false, silent = false;
    uint32_t running = 0;
    uint64_t completed = 0;
    int64_t step = -1;
    v1::ActorExited exited;
  };
  v1::NodeHello hello;
  std::map<Key, Actor> actors;
  std::map<std::string, int> starts_of;
  bool starts = true, announces = true, obeys = true, beats = true, open = false, shut_down = false;
  std::vector<v1::NodeCommand> commands;
  std::vector<v1::StartActor> started;
  std::vector<v1::StopActor> stopped;
  std::vector<std::string> unwanted;
  absl::Status closed;

 private:
  void Beat(uint64_t session) {
    if (!open || session != session_) return;
    if (beats) {
      v1::NodeEvent event;
      event.mutable_beat()->set_sequence(++sequence_);
      for (const auto& [key, actor] : actors) {
        if (!actor.lives || !actor.ready || actor.silent) continue;
        v1::ActorReport& report = *event.mutable_beat()->add_reports();
        report.set_actor_id(key.first);
        report.set_epoch(key.second);
        report.mutable_worker()->mutable_beat()->set_running(actor.running);
        report.mutable_worker()->mutable_beat()->set_completed(actor.completed);
        if (actor.step < 0) continue;
        v1::ActorReport& progress = *event.mutable_beat()->add_reports();
        progress.set_actor_id(key.first);
        progress.set_epoch(key.second);
        progress.mutable_worker()->mutable_progress()->set_step(actor.step);
      }
      Tell(event);
    }
    loop_.RunAfter(absl::Seconds(1), [self = shared_from_this(), session] { self->Beat(session); });
  }

  EventLoop& loop_;
  Core* core_ = nullptr;
  uint64_t session_ = 0, sequence_ = 0;
  int64_t next_pid_ = 1000;
  int next_port_ = 20000;
};

}  // namespace manta::controller::core
