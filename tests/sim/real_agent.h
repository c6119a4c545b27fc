// RealAgent: a simulated host whose agent is the real one's logic (controller/node/agent_core.h); its shims, workers
// and uplink are fakes that keep to what controller/node/ports.h asks of them.
//
// The agent has a loop of its own, whose clock is set to the world's whenever the agent runs: one that is stopped
// misses the time, as a stopped process does.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>

#include "controller/node/agent_core.h"
#include "controller/node/ports.h"
#include "tests/sim/sim_host.h"

namespace manta::sim {

class RealAgent : public SimHost, private node::ProcessPort, private node::UplinkPort, private node::HostPort {
 public:
  RealAgent(EventLoop& loop, RandomStream& random, Truth& truth, v1::NodeHello hello, DialFn dial);
  ~RealAgent() override;
  void CrashOne() override;

 private:
  using Key = std::pair<std::string, uint64_t>;
  struct Worker {
    int64_t pid = 0;
    bool ready = false, told_to_stop = false;
  };
  struct Shim {
    node::ShimSpec spec;
    absl::Time lease_until = absl::InfiniteFuture();
    absl::Time orphaned_at = absl::InfiniteFuture();
    std::map<Key, Worker> workers;
    bool used = false;
  };

  // ---- SimHost
  void OnBoot() override;
  void OnPowerLoss() override;
  void OnAgentStart() override;
  void OnAgentKilled() override;
  void OnThaw() override { Pump(); }
  void OnStreamStuck() override;

  // ---- ProcessPort
  node::ShimId StartShim(const node::ShimSpec& spec) override;
  bool Send(node::ShimId shim, const v1::ShimOrder& order) override;
  void KillShim(node::ShimId shim) override;
  void Recover(std::function<void(node::Recovered)> done) override;
  // ---- UplinkPort
  void Open() override;
  void Send(const v1::NodeEvent& event) override;
  void Close() override;
  // ---- HostPort
  void RememberExit(const v1::ActorReport& exit) override;
  void ForgetExit(const v1::ActorRef& actor) override;

  void OnOrder(node::ShimId shim, const v1::ShimOrder& order);
  void Begin(node::ShimId shim, const v1::StartActor& start);
  void End(node::ShimId shim, const Key& key, int code, int signal, bool fenced);
  void Tell(node::ShimId shim, v1::ActorReport report);
  void CheckShims();
  template <typename What>
  void ToAgent(What what);
  void UplinkDown(uint64_t attempt, node::UplinkLoss loss, const absl::Status& status);
  void Pump();
  void PumpOn();

  std::unique_ptr<EventLoop> agent_loop_;
  std::unique_ptr<node::AgentCore> core_;
  bool pumping_ = false;
  uint64_t attempt_ = 0;
  std::map<node::ShimId, Shim> shims_;
  node::ShimId next_shim_ = 1;
  std::map<Key, v1::ActorReport> records_;  // of ends, in the state folder
  int64_t next_pid_ = 1000;
};

}  // namespace manta::sim
