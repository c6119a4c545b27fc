// SimHost: a machine in the simulated cluster: its cable, its power, and an agent's process that can be killed and
// stopped; what runs in that process is its heirs' (fake_agent.h, real_agent.h).
//
// Shims and workers are the host's, not the agent's: they live on when that is killed or stopped.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "common/base/event_loop.h"
#include "common/base/random.h"
#include "manta/v1/node.pb.h"
#include "tests/sim/fake_network.h"
#include "tests/sim/truth.h"

namespace manta::sim {

class SimHost {
 public:
  enum class Dial { kStream, kRefused, kSilence };
  // Tries to reach the head. With kStream the stream is set up at the head's end; the agent sets its own callbacks.
  using DialFn = std::function<Dial(SimHost&, std::shared_ptr<Stream>*)>;

  SimHost(EventLoop& loop, RandomStream& random, Truth& truth, v1::NodeHello hello, DialFn dial)
      : loop_(loop), random_(random), truth_(truth), hello_(std::move(hello)), dial_(std::move(dial)) {}
  virtual ~SimHost() { *alive_ = false; }

  const std::string& name() const { return hello_.node(); }
  std::shared_ptr<Link> link() { return link_; }
  bool running() const { return agent_up_ && !frozen_; }

  // ---- What happens to it
  void Boot();                          // the host is up: the agent starts
  void KillAgent(absl::Duration down);  // kill -9, started again after `down`
  void Freeze(absl::Duration time);     // SIGSTOP ... SIGCONT
  void Reboot(absl::Duration down);     // the whole host
  void CutCable(absl::Duration time);
  virtual void CrashOne() = 0;   // one of its workers
  void Calm() { calm_ = true; }  // workers that start from here on neither crash nor hang

 protected:
  virtual void OnBoot() = 0;        // nothing of before is left
  virtual void OnPowerLoss() = 0;   // everything on it is gone
  virtual void OnAgentStart() = 0;  // also at boot, after OnBoot
  virtual void OnAgentKilled() = 0;
  virtual void OnThaw() {}
  virtual void OnStreamStuck() = 0;  // its own keepalive gives the stream up

  // How a worker that starts now will do: 0: it crashes before it is ready, 1: it is never ready, else it lives.
  uint64_t NextFate() {
    const uint64_t fate = random_.NextBelow(40);
    return calm_ ? 40 : fate;
  }

  // Runs when the agent's process can: at once, when it is thawed, or never if it is gone by then. (Templates: most of
  // a seed's time goes into such closures, and each that is wrapped once more is one more piece of memory.)
  template <typename What>
  void WhenAwake(What what) {
    if (!agent_up_) return;
    if (frozen_) {
      inbox_.push_back(std::move(what));
    } else {
      what();
    }
  }
  template <typename What>
  void AgentAfter(absl::Duration delay, What what) {
    HostAfter(delay, [this, agent = agents_, what = std::move(what)]() mutable {
      if (agents_ == agent) WhenAwake(std::move(what));
    });
  }
  template <typename What>
  void HostAfter(absl::Duration delay, What what) {
    loop_.RunAfter(delay, [this, alive = alive_, boot = boots_, what = std::move(what)]() mutable {
      if (*alive && host_up_ && boots_ == boot) what();
    });
  }

  EventLoop& loop_;
  RandomStream& random_;
  Truth& truth_;
  v1::NodeHello hello_;
  const DialFn dial_;
  std::shared_ptr<Link> link_ = std::make_shared<Link>();
  std::shared_ptr<Stream> stream_;
  std::vector<std::weak_ptr<Stream>> streams_;  // all that may hold messages
  uint64_t boots_ = 0, agents_ = 0;             // generations of the host and of the agent's process
  bool host_up_ = false, agent_up_ = false, frozen_ = false;
  bool ended_ = false;  // the agent has ended by itself, for good
  bool calm_ = false;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);

 private:
  std::vector<absl::AnyInvocable<void()>> inbox_;  // while frozen
};

}  // namespace manta::sim
