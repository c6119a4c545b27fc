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
#include "tests/sim/fake_network.h"
#include "tests/sim/truth.h"

namespace manta::sim {

class FakeAgent {
 public:
  enum class Dial { kStream, kRefused, kSilence };
  struct Hooks {
    // Tries to reach the head. With kStream the stream is set up at both ends but for the agent's own callbacks.
    std::function<Dial(FakeAgent&, std::shared_ptr<Stream>*, const v1::NodeHello&)> dial;
  };
  FakeAgent(EventLoop& loop, RandomStream& random, Truth& truth, v1::NodeHello hello, Hooks hooks);
  ~FakeAgent();

  const std::string& name() const { return hello_.node(); }
  std::shared_ptr<Link> link() { return link_; }
  bool running() const { return agent_up_ && !frozen_; }

  // ---- What happens to it
  void Boot();                          // the host is up: the agent starts
  void KillAgent(absl::Duration down);  // kill -9, started again after `down`
  void Freeze(absl::Duration time);     // SIGSTOP ... SIGCONT
  void Reboot(absl::Duration down);     // the whole host
  void CutCable(absl::Duration time);
  void CrashOne();                    // one of its workers
  void Retire() { retired_ = true; }  // does not come back once it has ended

 private:
  struct Worker {
    v1::StartActor start;
    int64_t pid = 0;
    bool lives = false, ready = false, told_to_stop = false, acked = false;
    v1::ActorExited exited;
  };
  using Key = std::pair<std::string, uint64_t>;

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
  // Runs when the agent's process can: at once, when it is thawed, or never if it is gone by then.
  void WhenAwake(std::function<void()> what);
  void AgentAfter(absl::Duration delay, std::function<void()> what);
  void HostAfter(absl::Duration delay, std::function<void()> what);

  EventLoop& loop_;
  RandomStream& random_;
  Truth& truth_;
  v1::NodeHello hello_;
  const Hooks hooks_;
  std::shared_ptr<Link> link_ = std::make_shared<Link>();
  std::shared_ptr<Stream> stream_;
  std::vector<std::weak_ptr<Stream>> streams_;  // all that may hold messages
  std::map<Key, Worker> workers_;
  std::vector<std::function<void()>> inbox_;  // while frozen
  uint64_t boots_ = 0, agents_ = 0;           // generations of the host and of the agent's process
  bool host_up_ = false, agent_up_ = false, frozen_ = false, welcomed_ = false, shutting_down_ = false,
       retired_ = false;
  absl::Time lease_until_ = absl::InfinitePast();
  absl::Time last_contact_ = absl::InfinitePast();
  absl::Time orphaned_at_ = absl::InfiniteFuture();  // shims without an agent
  absl::Duration lease_ = absl::Seconds(8), agent_grace_ = absl::Seconds(10), controller_grace_ = absl::Minutes(10);
  bool waits_ = true;
  uint64_t beat_ = 0;
  std::map<uint64_t, absl::Time> sent_;
  absl::Time hello_sent_;
  int64_t next_pid_ = 1000;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace manta::sim
