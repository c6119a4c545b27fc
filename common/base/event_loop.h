// EventLoop: one thread that owns some state, and what wakes it: posted closures, timers and file descriptors.
//
// State that belongs to a loop is touched on its thread alone, so it needs no locks: other threads (gRPC's, a lane's)
// Post() closures to it. Post, Stop and poster() may be called from any thread; everything else from the thread that is
// inside Run(), or, while nobody is, from the thread that will be.
//
// Closures run in the order in which they were posted, timers in order of their time and then of their creation. A
// closure must not block. What is still queued when the loop is destroyed is dropped unrun. Outside threads that may
// outlive the loop keep a Poster: posting to a loop that is gone is a no-op that says so.
//
// A loop made by Simulated() has a clock of its own that stands still while closures run and then jumps to the next
// timer, so that tests of time-outs take no time and always see the same order.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <thread>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/time/time.h"

namespace manta {

class EventLoop {
 public:
  using Closure = absl::AnyInvocable<void()>;
  using TimerId = uint64_t;  // never 0

  EventLoop() : EventLoop(/*simulated=*/false) {}
  static std::unique_ptr<EventLoop> Simulated() { return std::unique_ptr<EventLoop>(new EventLoop(true)); }
  ~EventLoop();
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;

  // A copyable way to post that stays valid after the loop is gone.
  class Poster {
   public:
    bool Post(Closure closure) const;  // false where the loop is gone: the closure is destroyed unrun

   private:
    friend class EventLoop;
    struct Queue;
    explicit Poster(std::shared_ptr<Queue> queue) : queue_(std::move(queue)) {}
    std::shared_ptr<Queue> queue_;
  };
  Poster poster() const { return poster_; }
  void Post(Closure closure) { poster_.Post(std::move(closure)); }

  // Runs `closure` once, `delay` from now (at once, but not before this returns, where it is zero or negative).
  TimerId RunAfter(absl::Duration delay, Closure closure);
  void Cancel(TimerId id);  // of a timer that ran already or is unknown: nothing

  // Calls `on_ready` whenever `fd` can be read (level-triggered), until Unwatch. The caller keeps the descriptor open.
  void WatchReadable(int fd, std::function<void()> on_ready);
  void Unwatch(int fd);

  // Runs until Stop(). A simulated loop also returns when nothing is queued and no timer is set.
  void Run();
  // Runs for `duration` of the loop's own clock, or until Stop().
  void RunFor(absl::Duration duration);
  void Stop();

  // The loop's clock. It only moves forward; only differences mean something.
  absl::Time Now() const;
  bool OnOwnThread() const { return owner_.load(std::memory_order_relaxed) == std::this_thread::get_id(); }

 private:
  explicit EventLoop(bool simulated);
  // Timers lie in slots; a heap says which is next. A cancelled timer's closure goes at once, its place in the heap
  // when it comes up or when such places are the most.
  struct Slot {
    Closure closure;
    uint64_t order = 0;       // of creation, never 0; 0: free
    uint64_t generation = 0;  // how often the slot was taken: a number's upper bits
    uint32_t next_free = 0;
  };
  struct Due {
    absl::Time at;
    uint32_t slot;
    uint64_t order;
    bool operator<(const Due& other) const {  // of a heap whose top is the first
      return at != other.at ? at > other.at : order > other.order;
    }
  };
  bool Waits(const Due& due) const { return slots_[due.slot].order == due.order; }
  Closure Take(uint32_t slot);
  absl::Time NextTimer();
  void RunUntil(absl::Time end);
  bool RunPosted();
  bool RunDueTimers();
  void Wait(absl::Time until);

  const bool simulated_;
  Poster poster_;
  int epoll_fd_ = -1;
  std::atomic<std::thread::id> owner_{};
  absl::Time simulated_now_ = absl::UnixEpoch();
  uint64_t next_order_ = 1;
  std::vector<Due> heap_;
  std::vector<Slot> slots_;
  uint32_t free_slot_;          // the first of a list; kNoSlot: none
  size_t num_cancelled_ = 0;    // of the heap's
  std::vector<Closure> spare_;  // room that the last round of posted closures took
  std::map<int, std::shared_ptr<std::function<void()>>> watches_;
};

}  // namespace manta
