// LocalProcesses: the shims of this machine, as AgentCore's ProcessPort: started through the launcher, spoken to by
// packets, watched by their sockets' ends. Belongs to its loop.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "common/base/event_loop.h"
#include "controller/node/ports.h"

namespace manta::node {

class LocalProcesses : public ProcessPort {
 public:
  // `launcher`: the agent's end of its socket (taken). Set `on_report` and `on_gone` before the first call.
  LocalProcesses(EventLoop& loop, int launcher, std::string state_dir, std::string agent_key);
  ~LocalProcesses() override;

  std::function<void(ShimId, const v1::ShimReport&)> on_report;
  std::function<void(ShimId, const std::string& why)> on_gone;

  ShimId StartShim(const ShimSpec& spec) override;
  bool Send(ShimId shim, const v1::ShimOrder& order) override;
  void KillShim(ShimId shim) override;
  void Recover(std::function<void(Recovered)> done) override;

 private:
  struct Shim {
    int socket = -1, pidfd = -1;
    int64_t pid = 0;
    std::string why;            // how it ended, once that is known
    std::set<int64_t> workers;  // that have been reported started, and not ended
    int waits = 0;              // of Vanish
  };
  struct Recovery;

  void ReadLauncher();
  void LauncherGone();
  void Watch(ShimId id);
  void ReadShim(ShimId id);
  void Note(Shim& shim, const v1::ShimReport& report);
  void Vanish(ShimId id);
  void Finish(ShimId id);

  EventLoop& loop_;
  int launcher_;
  const std::string state_dir_, agent_key_;
  ShimId next_id_ = 1;
  std::map<ShimId, Shim> shims_;
  std::shared_ptr<Recovery> recovery_;
};

}  // namespace manta::node
