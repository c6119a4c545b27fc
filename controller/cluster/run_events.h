// RunEvents: what a run tells people about itself, kept for those who watch (ControllerService.WatchRun, `manta run`'s
// progress line) and, text for text, in the run's log.
//
// The last `capacity` events are kept; a watcher that comes late, or reads slowly, gets what is left from where it
// asked, always with the RunEnded that closes every run. Belongs to the controller's loop.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "manta/v1/controller.pb.h"

namespace manta::controller {

class RunEvents {
 public:
  // Events are numbered from `after` + 1 on: those of a later controller come after an earlier one's.
  explicit RunEvents(size_t capacity = 10000, uint64_t after = 0) : capacity_(capacity), next_sequence_(after + 1) {}

  // "step 3: generating"; `fraction` of this phase, negative where unknown.
  void Phase(const std::string& name, double fraction = -1);
  // A step is done. `seconds_left` for the rest of the run.
  void Step(int64_t step, int64_t num_steps, double seconds_left, const std::map<std::string, double>& metrics);
  // Where a run stands that has begun, or goes on; no event.
  void At(int64_t step, int64_t num_steps);
  void Text(const std::string& text);
  void Warning(const std::string& text);
  // Once, the last of a run; what comes after is dropped.
  void Ended(const absl::Status& status, const std::string& checkpoint, const std::string& summary);

  void set_algorithm(const std::string& algorithm) { algorithm_ = algorithm; }
  const std::string& algorithm() const { return algorithm_; }
  int64_t step() const { return step_; }
  int64_t num_steps() const { return num_steps_; }
  bool ended() const { return ended_; }
  uint64_t last_sequence() const { return next_sequence_ - 1; }

  // The kept events after `sequence`, oldest first, at most `max`.
  std::vector<v1::RunEvent> After(uint64_t sequence, size_t max) const;
  // Called after each new event, until the returned id is removed.
  uint64_t AddListener(std::function<void()> listener);
  void RemoveListener(uint64_t id) { listeners_.erase(id); }
  bool had_listener() const { return next_listener_ > 1; }

 private:
  v1::RunEvent* Add();
  void Notify();

  const size_t capacity_;
  std::string algorithm_;
  int64_t step_ = 0, num_steps_ = 0;
  bool ended_ = false;
  uint64_t next_sequence_, next_listener_ = 1;
  std::deque<v1::RunEvent> events_;
  std::map<uint64_t, std::function<void()>> listeners_;
};

}  // namespace manta::controller
