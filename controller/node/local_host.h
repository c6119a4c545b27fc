// LocalHost: what AgentCore asks of its machine besides processes (HostPort): ports, logs, stacks, files of the state
// folder. Belongs to its loop.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "common/base/event_loop.h"
#include "controller/node/ports.h"

namespace manta::node {

class LocalHost : public HostPort {
 public:
  LocalHost(EventLoop& loop, std::string state_dir);
  ~LocalHost() override;

  // Where workers find their token.
  std::string worker_token_file() const { return state_dir_ + "/worker.token"; }

  bool PortIsFree(int port) override;
  void SaveWorkerToken(const std::string& token) override;
  void RememberExit(const v1::ActorReport& exit) override;
  void ForgetExit(const v1::ActorRef& actor) override;
  std::vector<std::string> LastLines(const std::string& log_path) override;
  void ReadLog(const v1::ReadLog& request, const std::string& log_path,
               std::function<void(const v1::LogChunk&)> chunk) override;
  void DumpStacks(int64_t pid, const std::string& log_path, std::function<void(std::string)> done) override;

 private:
  struct Reader;
  void Step(uint64_t id);

  EventLoop& loop_;
  const std::string state_dir_;
  std::map<uint64_t, std::unique_ptr<Reader>> readers_;  // of logs that are followed
};

}  // namespace manta::node
