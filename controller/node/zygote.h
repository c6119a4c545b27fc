// Zygote: the shim's half of pre-forked starts (common/actor/zygote.h): a program that was loaded once, and forks a
// worker for each request. Belongs to the shim's loop.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "common/base/event_loop.h"
#include "controller/node/process.h"
#include "manta/v1/node.pb.h"

namespace manta::node {

class Zygote {
 public:
  // `forked`: a worker is there, and this process's child. `failed`: that one is not. `unfit`: the zygote is of no use
  // (any more): it refused, died, or did not get ready; requests without an answer have none. Not called from within a
  // call.
  struct Host {
    EventLoop* loop;
    std::function<void(const std::string& actor_id, uint64_t epoch, pid_t pid)> forked;
    std::function<void(const std::string& actor_id, uint64_t epoch, const std::string& why)> failed;
    std::function<void(const std::string& why)> unfit;
  };
  explicit Zygote(Host host) : host_(std::move(host)) {}
  ~Zygote();
  Zygote(const Zygote&) = delete;
  Zygote& operator=(const Zygote&) = delete;

  [[nodiscard]] absl::Status Start(const ProcessSpec& spec);
  // `start.env` is all that the worker gets. False where it cannot be asked.
  bool Fork(const v1::StartActor& start, const std::vector<int>& descriptors);
  pid_t pid() const { return process_.has_value() ? process_->pid() : -1; }

 private:
  void Read();
  void Unfit(const std::string& why);

  const Host host_;
  std::optional<Process> process_;
  int socket_ = -1;
  bool ready_ = false;
  EventLoop::TimerId timer_ = 0;
};

}  // namespace manta::node
