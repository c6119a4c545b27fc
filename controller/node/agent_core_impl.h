// The parts of AgentCore: agent_core.cc has its membership and lease, agent_actors.cc its actors.
#pragma once

#include <deque>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "controller/node/agent_core.h"
#include "controller/node/port_leases.h"

namespace manta::node {

class AgentCore::Impl {
 public:
  Impl(EventLoop& loop, ProcessPort& processes, UplinkPort& uplink, HostPort& host, AgentOptions options,
       std::function<void(const absl::Status&)> on_done);
  ~Impl();

  using Key = std::pair<std::string, uint64_t>;  // actor and epoch
  struct Actor {
    v1::StartActor start;  // of one that was taken over: its identity alone
    ShimId shim = 0;
    bool waits = false;  // for an older epoch's end; it has no shim yet
    bool started = false, asked_to_stop = false, retried = false;
    int64_t pid = 0;
    v1::ActorSnapshot snapshot;
    bool beat_changed = false;
    EventLoop::TimerId kill_timer = 0;
  };
  struct Ended {
    v1::ActorReport report;  // exited or start_failed
    absl::Time when;
    bool acked = false;
  };

  // ---- Membership and lease (agent_core.cc)
  void OnRecovered(Recovered recovered);
  void Connect();
  void OnUplinkDown(UplinkLoss loss, const absl::Status& status);
  void OnCommand(const v1::NodeCommand& command);
  void OnWelcome(const v1::NodeWelcome& welcome);
  void OnBeatAck(uint64_t sequence);
  void Beat();
  void Tick();
  void GiveLease(ShimId shim);
  void Shutdown(absl::Duration grace, absl::Status why);
  void FinishIfDone();
  void Send(const v1::NodeEvent& event) { uplink_.Send(event); }

  // ---- Actors (agent_actors.cc)
  void Start(v1::StartActor start);
  absl::Status Prepare(v1::StartActor* start) const;
  void Launch(Actor& actor);
  void Stop(const v1::StopActor& stop);
  void EndOlder(const Key& key);
  void Command(const v1::WorkerCommand& command);
  void OnShim(ShimId shim, const v1::ShimReport& report);
  void OnReport(ShimId shim, const v1::ActorReport& report);
  void OnShimGone(ShimId shim, const std::string& why);
  void Retire(const Key& key, v1::ActorReport report, bool remember);
  void RetireUnstarted(const Key& key, const std::string& message);
  void Remember(const Key& key, v1::ActorReport report, bool remember);
  void Acked(const Key& key);
  void Tell(const v1::ActorReport& report);
  void TellState(const Key& key, const Actor& actor);
  void LeasePorts(const v1::LeasePorts& request);
  std::string LogPath(const std::string& actor_id) const;
  void AddRunning(v1::NodeHello* hello) const;
  bool ShimIsShared(ShimId shim, const Key& besides) const;

  EventLoop& loop_;
  ProcessPort& processes_;
  UplinkPort& uplink_;
  HostPort& host_;
  const AgentOptions options_;
  const std::function<void(const absl::Status&)> on_done_;

  // Membership
  bool welcomed_ = false;  // ever
  bool joined_ = false;    // now
  bool ending_ = false, done_ = false;
  absl::Status end_status_;
  absl::Time join_deadline_, last_opened_, last_heard_, lost_since_ = absl::InfiniteFuture();
  absl::Duration backoff_ = absl::ZeroDuration();
  std::string run_dir_;
  absl::Duration beat_interval_ = absl::Seconds(1), agent_grace_ = absl::Seconds(10),
                 controller_grace_ = absl::Minutes(10), lease_ttl_ = absl::Seconds(8);
  absl::Time lease_until_ = absl::InfinitePast();
  uint64_t beat_sequence_ = 0;
  std::deque<std::pair<uint64_t, absl::Time>> beats_sent_;
  EventLoop::TimerId beat_timer_ = 0, tick_timer_ = 0, connect_timer_ = 0;

  // Actors
  std::map<Key, Actor> actors_;
  std::map<Key, Ended> ended_;
  std::map<std::string, uint64_t> newest_;  // epoch of each actor that has been ordered here
  std::map<std::string, ShimId> pools_;     // of pre-forked workers, by what their program is started with
  PortLeases ports_;
};

}  // namespace manta::node
