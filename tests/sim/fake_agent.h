// FakeAgent: a node as the head meets it: an agent with its lease, shims that end what they hold when the lease runs
// out or nobody adopts them, and workers that start, beat, crash and hang. Stands in for controller/node's core, and
// says what that has to do:
//
//   - the lease counts from when a beat (or the hello) was sent; what is ordered after it has run out is not done
//   - a head that refuses connections is dead and its host alive: the agent then grants the lease itself, for as long
//   as
//     it was told; silence grants nothing
//   - (actor, epoch) is started once; asked again, it answers with what became of it
//   - exits are kept until the head has acknowledged them
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "common/base/event_loop.h"
#include "common/base/random.h"
#include "manta/v1/node.pb.h"
#include "tests/sim/sim_host.h"

namespace manta::sim {

class FakeAgent : public SimHost {
 public:
  using SimHost::SimHost;
  void CrashOne() override;

 private:
  void OnBoot() override;
  void OnPowerLoss() override;
  void OnAgentStart() override;
  void OnAgentKilled() override { orphaned_at_ = loop_.Now(); }
  void OnStreamStuck() override;

  struct Worker {
    v1::StartActor start;
    int64_t pid = 0;
    bool lives = false, ready = false, told_to_stop = false, acked = false;
    v1::ActorExited exited;
  };
  using Key = std::pair<std::string, uint64_t>;

  v1::NodeEvent Hello() const;
  void Connect();
  void Disconnected();
  void OnCommand(const v1::NodeCommand& command);
  void OnStart(const v1::StartActor& start);
  void OnStop(const std::string& actor_id, uint64_t epoch, absl::Duration grace);
  void Begin(const Key& key);
  void End(const Key& key, int code, int signal, bool fenced);
  void Report(const Key& key, v1::ActorReport report);
  void Beat();
  void SetLease(absl::Time until);
  void LeaseCheck();
  void EndAll(bool fenced);
  std::map<Key, Worker> workers_;
  bool welcomed_ = false, shutting_down_ = false;
  absl::Time lease_until_ = absl::InfinitePast();
  absl::Time last_contact_ = absl::InfinitePast();
  absl::Time orphaned_at_ = absl::InfiniteFuture();  // shims without an agent
  absl::Duration lease_ = absl::Seconds(8), agent_grace_ = absl::Seconds(10), controller_grace_ = absl::Minutes(10);
  bool waits_ = true;
  uint64_t beat_ = 0;
  std::map<uint64_t, absl::Time> sent_;
  absl::Time hello_sent_;
  int64_t next_pid_ = 1000;
};

}  // namespace manta::sim
