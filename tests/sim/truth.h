// Truth: what really runs in the simulated cluster, seen by nobody in it. The invariants that matter most are about
// this, not about what the head believes.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "manta/v1/node.pb.h"

namespace manta::sim {

struct Process {
  std::string actor_id;
  uint64_t epoch = 0;
  std::string node;
  std::vector<int> gpus;
};

class Truth {
 public:
  void Started(const Process& process) {
    if (!ever_.emplace(process.actor_id, process.epoch).second) {
      Broken(absl::StrCat(process.actor_id, " epoch ", process.epoch, " was started twice"));
    }
    for (const auto& [key, other] : live_) {
      if (other.actor_id == process.actor_id) {
        Broken(absl::StrCat(process.actor_id, " runs twice: epoch ", other.epoch, " on ", other.node, " and epoch ",
                            process.epoch, " on ", process.node));
      }
      if (other.node != process.node) continue;
      for (int gpu : process.gpus) {
        for (int held : other.gpus) {
          if (gpu != held) continue;
          Broken(absl::StrCat("GPU ", gpu, " of ", process.node, " is held by ", other.actor_id, " epoch ", other.epoch,
                              " and ", process.actor_id, " epoch ", process.epoch));
        }
      }
    }
    live_[{process.actor_id, process.epoch}] = process;
    if (on_started) on_started(process);
  }
  void Ended(const std::string& actor_id, uint64_t epoch) {
    if (live_.erase({actor_id, epoch}) > 0 && on_ended) on_ended(actor_id, epoch);
  }
  void Fenced(const std::string& actor_id, uint64_t epoch, const v1::Fence& fence) {
    if (on_fence && Lives(actor_id, epoch)) on_fence(actor_id, epoch, fence);
  }
  bool Lives(const std::string& actor_id, uint64_t epoch) const { return live_.count({actor_id, epoch}) > 0; }
  const std::map<std::pair<std::string, uint64_t>, Process>& live() const { return live_; }
  void Broken(std::string what) {
    if (broken_.size() < 20) broken_.push_back(std::move(what));
  }
  const std::vector<std::string>& broken() const { return broken_; }

  // What else happens in the processes (calls.h).
  std::function<void(const Process&)> on_started;
  std::function<void(const std::string& actor_id, uint64_t epoch)> on_ended;
  std::function<void(const std::string& actor_id, uint64_t epoch, const v1::Fence& fence)> on_fence;

 private:
  std::map<std::pair<std::string, uint64_t>, Process> live_;
  std::set<std::pair<std::string, uint64_t>> ever_;
  std::vector<std::string> broken_;
};

}  // namespace manta::sim
