// Crew: the threads of an actor's call server. One of them, the leader, waits for events; a call's handler is run by
// the leader itself, because a hop to another thread costs more than most handlers. Should a handler take long, the
// sentinel
// - a thread that looks every millisecond while calls flow - becomes the leader in its place, and the old leader goes
// on as that lane's thread. So there is always exactly one thread that waits for events (several would cost latency),
// and an event waits two milliseconds at worst.
//
// A lane whose handler was slow hands its next calls to a spare thread at once. Threads are made as they are needed, at
// most one a call that runs and two more. Replies gathered by the leader are flushed when it has run what had come, or
// by the sentinel.
//
// Thread-safe. Handlers run on the crew's threads, without locks held.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "common/call/core/lanes.h"

namespace manta::call {

class Crew {
 public:
  // `poll` waits for an event and does what it asks for, short of running handlers of lanes; false ends the crew. `run`
  // runs one call and says to Replied what it has answered.
  Crew(LaneSet& lanes, std::function<bool()> poll, std::function<void(const CallRef&)> run);
  ~Crew();  // Join
  void Start();
  void Join();  // after `poll` has returned false

  // A session has replies that nobody was told of: they are flushed soon.
  void Replied(const std::shared_ptr<ServerSession>& session);

  int num_threads() const;

 private:
  enum class Role { kLead, kWatch, kLane, kSpare };
  struct Thread {
    Role role;
    int lane = 0;
    std::thread thread;
  };
  void Main(Thread* self);
  void Lead();                            // returns when another thread leads, or at the end
  bool Drain(uint64_t turn);              // false: another thread leads by now
  bool RunLane(int lane, uint64_t turn);  // a claimed lane, until it is empty
  bool Watch();                           // true: this thread is to lead
  // Gives a role to a spare thread, or to a new one; false where there are enough.
  bool Assign(Role role, int lane);
  void FlushAll();

  LaneSet& lanes_;
  const std::function<bool()> poll_;
  const std::function<void(const CallRef&)> run_;
  // Odd: the leader runs handlers; even: it polls. Whoever takes the lead over raises it.
  std::atomic<uint64_t> turn_{0};
  std::atomic<uint64_t> calls_run_{0};  // by leaders
  std::atomic<int> lane_{0};            // the leader's
  std::atomic<bool> watching_{true};

  mutable std::mutex mu_;
  std::condition_variable changed_;
  std::vector<std::unique_ptr<Thread>> threads_;
  bool stopping_ = false;

  std::mutex replied_mu_;
  std::vector<std::shared_ptr<ServerSession>> replied_;
  std::atomic<bool> any_replied_{false};
};

}  // namespace manta::call
