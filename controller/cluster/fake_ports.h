// Fake agents and actors for tests of the cluster's logic: they record what they are told and say what the test has
// them say. For tests only.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "controller/cluster/cluster.h"
#include "controller/cluster/ports.h"

namespace manta::controller {

// An agent that starts every actor at once under a new pid and, unless told otherwise, ends it when asked to.
class FakeNode : public NodeLink, public std::enable_shared_from_this<FakeNode> {
 public:
  FakeNode(EventLoop& loop, Cluster& cluster, std::string name, int cpu_slots, int num_gpus = 0)
      : loop_(loop), cluster_(cluster), name_(std::move(name)) {
    hello_.set_node(name_);
    hello_.set_cpu_slots(cpu_slots);
    for (int i = 0; i < num_gpus; ++i) hello_.add_gpus()->set_index(i);
  }
  absl::Status Join() {
    gone_ = false;
    const absl::Status joined = cluster_.NodeJoined(hello_, shared_from_this());
    if (joined.ok()) Beat();
    return joined;
  }

  void Send(const v1::NodeCommand& command) override {
    if (command.has_start()) {
      started.push_back(command.start());
      if (!starts) return;
      pids_[command.start().actor_id()] = next_pid_++;
      loop_.Post([this, start = command.start()] {
        if (gone_) return;
        v1::NodeEvent event;
        event.mutable_started()->set_actor_id(start.actor_id());
        event.mutable_started()->set_epoch(start.epoch());
        event.mutable_started()->set_pid(pids_[start.actor_id()]);
        cluster_.NodeEvent(name_, event);
        if (announces) (void)Announce(start.actor_id(), start.epoch());
      });
    } else if (command.has_stop()) {
      stopped.push_back(command.stop());
      if (!obeys) return;
      loop_.Post([this, stop = command.stop()] { Exit(stop.actor_id(), stop.epoch(), 0, 0, true); });
    } else if (command.has_shutdown()) {
      shut_down = true;
      loop_.Post([this] { cluster_.NodeGone(name_, "it has ended"); });
    }
  }
  void Close(const absl::Status& status) override {
    closed = status;
    gone_ = true;
  }

  absl::Status Announce(const std::string& actor_id, uint64_t epoch) {
    v1::AnnounceRequest request;
    request.set_actor_id(actor_id);
    request.set_epoch(epoch);
    request.set_pid(pids_[actor_id]);
    request.set_address(actor_id + ":1");
    return cluster_.Announce(request);
  }
  void Exit(const std::string& actor_id, uint64_t epoch, int code, int signal, bool asked = false) {
    if (gone_) return;
    v1::NodeEvent event;
    v1::ActorExited* exited = event.mutable_exited();
    exited->set_actor_id(actor_id);
    exited->set_epoch(epoch);
    exited->set_exit_code(code);
    exited->set_exit_signal(signal);
    exited->set_asked_to_stop(asked);
    exited->add_last_lines("its last line");
    cluster_.NodeEvent(name_, event);
  }

  bool starts = true, announces = true, obeys = true, beats = true, shut_down = false;
  std::vector<v1::StartActor> started;
  std::vector<v1::StopActor> stopped;
  absl::Status closed;

 private:
  void Beat() {
    if (gone_) return;
    if (beats) {
      v1::NodeEvent event;
      event.mutable_beat();
      cluster_.NodeEvent(name_, event);
    }
    loop_.RunAfter(absl::Seconds(1), [self = shared_from_this()] { self->Beat(); });
  }

  EventLoop& loop_;
  Cluster& cluster_;
  const std::string name_;
  v1::NodeHello hello_;
  std::map<std::string, int64_t> pids_;
  int64_t next_pid_ = 1000;
  bool gone_ = false;
};

// Actors that beat every second until they are made silent, by address.
class FakeActors : public ActorPort {
 public:
  explicit FakeActors(EventLoop& loop) : loop_(loop) {}

  absl::StatusOr<std::unique_ptr<ActorConnection>> Connect(const std::string& address,
                                                           std::function<void(const v1::ActorBeat&)> on_beat,
                                                           std::function<void(const absl::Status&)> on_end) override {
    auto state = std::make_shared<State>();
    state->on_beat = std::move(on_beat);
    state->on_end = std::move(on_end);
    connections_[address] = state;
    Beat(state);
    return std::make_unique<Connection>(state);
  }

  void Silence(const std::string& address) { connections_.at(address)->silent = true; }
  void Break(const std::string& address) {
    const auto state = connections_.at(address);
    if (!state->gone) state->on_end(absl::UnavailableError("broken"));
  }
  const std::vector<v1::PeerLostRequest>& peers_lost(const std::string& address) const {
    return connections_.at(address)->lost;
  }

 private:
  struct State {
    std::function<void(const v1::ActorBeat&)> on_beat;
    std::function<void(const absl::Status&)> on_end;
    std::vector<v1::PeerLostRequest> lost;
    bool silent = false, gone = false;
  };
  struct Connection : ActorConnection {
    explicit Connection(std::shared_ptr<State> s) : state(std::move(s)) {}
    ~Connection() override { state->gone = true; }
    std::shared_ptr<grpc::Channel> channel() override { return nullptr; }
    void PeerLost(const v1::PeerLostRequest& request) override { state->lost.push_back(request); }
    std::shared_ptr<State> state;
  };
  void Beat(std::shared_ptr<State> state) {
    if (state->gone) return;
    if (!state->silent) state->on_beat({});
    loop_.RunAfter(absl::Seconds(1), [this, state] { Beat(state); });
  }

  EventLoop& loop_;
  std::map<std::string, std::shared_ptr<State>> connections_;
};

}  // namespace manta::controller
