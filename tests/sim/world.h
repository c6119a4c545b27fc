// World: one simulated cluster: the head's real core on a journal whose disk can be slow, full or lost in a crash;
// agents, workers and cables that fail; and people who ask for placements and groups and remember what they were told.
// Everything follows from the seed.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/base/event_loop.h"
#include "common/base/random.h"
#include "controller/core/core.h"
#include "controller/core/memory_journal.h"
#include "tests/sim/calls.h"
#include "tests/sim/sim_host.h"
#include "tests/sim/truth.h"

namespace manta::sim {

namespace core = controller::core;

struct WorldOptions {
  uint64_t seed = 1;
  int nodes = 20;
  absl::Duration duration = absl::Seconds(200);
  int real_agents = 0;  // of the nodes: how many run controller/node's own logic
  bool calls = false;   // processes are called, too (calls.h)
  bool wild = false;    // ... over a network that repeats and reorders
  std::string fault;    // of CoreOptions; or, of the processes' call tables, "no_sealing", "fences_ignored"
  bool trace = false;
};

class World {
 public:
  explicit World(WorldOptions options);
  ~World();

  // Lets things happen for the duration, then heals everything, looks whether all comes to rest, and shuts down.
  // What was broken, in words; empty if nothing.
  std::vector<std::string> Run();
  uint64_t events() const { return events_; }
  uint64_t executed() const { return calls_ == nullptr ? 0 : calls_->executed(); }
  const std::deque<std::string>& log() const { return log_; }

 private:
  struct Ask {  // of somebody who goes on asking until there is an answer
    enum class What { kPlacement, kGroup } what = What::kPlacement;
    std::string name;  // key of the placement, role of the group
    v1::PlacementRequest placement;
    v1::GroupRequest group;
    enum class State { kAsked, kThere, kRemoving, kGone } state = State::kAsked;
    uint64_t id = 0;
    std::vector<std::pair<std::string, std::vector<int>>> ranks;  // as they were told
    uint64_t head = 0;                                            // that it was last asked of
    int generation = 0;
  };

  void MakeCalls();
  void Log(const std::string& line);
  void StartHead();
  void CrashHead(absl::Duration down);
  void Act();
  void Schedule();
  void AskFor(Ask& ask);
  void Remove(Ask& ask);
  void NewPlacement();
  void NewGroup();
  void Verify();
  void Quiesce();
  void CheckRest();
  bool Answered(Ask& ask, uint64_t head, int generation) const {
    return ask.head == head && ask.generation == generation;
  }
  SimHost::Dial Dial(SimHost& host, std::shared_ptr<Stream>* stream);
  uint64_t Below(uint64_t n) { return random_.NextBelow(n); }
  absl::Duration Between(double low, double high) { return absl::Seconds(low + (high - low) * random_.NextUniform()); }

  const WorldOptions options_;
  std::unique_ptr<EventLoop> loop_ = EventLoop::Simulated();
  RandomStream random_;
  Truth truth_;
  std::shared_ptr<core::MemoryJournal::Disk> disk_ = std::make_shared<core::MemoryJournal::Disk>();
  std::unique_ptr<core::MemoryJournal> journal_;
  std::unique_ptr<core::Core> core_;
  uint64_t incarnation_ = 0;
  absl::Duration commit_slowness_;
  std::vector<std::unique_ptr<SimHost>> agents_;
  std::vector<std::weak_ptr<Stream>> streams_;  // all that were made
  std::unique_ptr<Calls> calls_;  // null: none
  std::map<std::string, Ask> asks_;
  int names_ = 0;
  bool calm_ = false;  // nothing goes wrong any more
  uint64_t verified_ = 0, events_ = 0;
  std::deque<std::string> log_;
};

}  // namespace manta::sim
