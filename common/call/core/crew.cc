#include "common/call/core/crew.h"

#include <pthread.h>

#include <chrono>
#include <utility>

#include "common/base/check.h"

namespace manta::call {
namespace {

constexpr auto kWatchEvery = std::chrono::milliseconds(1);
constexpr int kQuietTicks = 10;  // without a turn: the sentinel sleeps until the next

// The turn in which this thread leads; 0: it does not.
thread_local uint64_t leading_turn = 0;

}  // namespace

Crew::Crew(LaneSet& lanes, std::function<bool()> poll, std::function<void(const CallRef&)> run)
    : lanes_(lanes), poll_(std::move(poll)), run_(std::move(run)) {}

Crew::~Crew() {
  Join();
}

void Crew::Start() {
  MANTA_CHECK(Assign(Role::kLead, 0) && Assign(Role::kWatch, 0));
}

void Crew::Join() {
  // Threads may still be added while the first ones end.
  for (size_t i = 0;; ++i) {
    std::thread* thread = nullptr;
    {
      std::lock_guard lock(mu_);
      if (i == threads_.size()) break;
      thread = &threads_[i]->thread;
    }
    if (thread->joinable()) thread->join();
  }
}

int Crew::num_threads() const {
  std::lock_guard lock(mu_);
  return static_cast<int>(threads_.size());
}

void Crew::Replied(const std::shared_ptr<ServerSession>& session) {
  if (leading_turn == 0 || turn_.load(std::memory_order_relaxed) != leading_turn) {
    session->Flush();
    return;
  }
  std::lock_guard lock(replied_mu_);
  replied_.push_back(session);
  any_replied_.store(true, std::memory_order_release);
}

void Crew::FlushAll() {
  if (!any_replied_.load(std::memory_order_acquire)) return;
  std::vector<std::shared_ptr<ServerSession>> sessions;
  {
    std::lock_guard lock(replied_mu_);
    sessions.swap(replied_);
    any_replied_.store(false, std::memory_order_relaxed);
  }
  for (const auto& session : sessions) session->Flush();
  sessions.clear();
  std::lock_guard lock(replied_mu_);
  if (replied_.capacity() == 0) replied_.swap(sessions);  // its memory is used again
}

bool Crew::Assign(Role role, int lane) {
  std::lock_guard lock(mu_);
  if (stopping_ && role != Role::kLane) return true;
  for (const auto& thread : threads_) {
    if (thread->role != Role::kSpare) continue;
    thread->role = role;
    thread->lane = lane;
    changed_.notify_all();
    return true;
  }
  if (role == Role::kLane && static_cast<int>(threads_.size()) >= lanes_.total_concurrency() + 2) return false;
  threads_.push_back(std::make_unique<Thread>());
  Thread* self = threads_.back().get();
  self->role = role;
  self->lane = lane;
  self->thread = std::thread([this, self] { Main(self); });
  pthread_setname_np(self->thread.native_handle(), "calls");
  return true;
}

void Crew::Main(Thread* self) {
  while (true) {
    Role role;
    int lane;
    {
      std::unique_lock lock(mu_);
      changed_.wait(lock, [&] { return self->role != Role::kSpare || stopping_; });
      role = self->role;
      lane = self->lane;
    }
    switch (role) {
      case Role::kWatch:
        if (!Watch()) break;
        [[fallthrough]];
      case Role::kLead:
        Lead();
        break;
      case Role::kLane:
        RunLane(lane, 0);
        break;
      case Role::kSpare:
        return;  // stopping
    }
    std::lock_guard lock(mu_);
    self->role = Role::kSpare;
    if (stopping_) return;
  }
}

void Crew::Lead() {
  while (poll_()) {
    if (lanes_.has_work()) {
      const uint64_t turn = turn_.load(std::memory_order_relaxed) + 1;
      turn_.store(turn, std::memory_order_release);
      if (!watching_.load(std::memory_order_relaxed)) {
        std::lock_guard lock(mu_);
        watching_ = true;
        changed_.notify_all();
      }
      leading_turn = turn;
      const bool leads = Drain(turn);
      leading_turn = 0;
      if (!leads) return;
    }
    FlushAll();
  }
  // What waits in lanes still has its handlers: they answer that the worker stops, or run.
  std::lock_guard lock(mu_);
  stopping_ = true;
  changed_.notify_all();
}

bool Crew::Drain(uint64_t turn) {
  int lane = 0;
  while ((lane = lanes_.ClaimAny(lane)) >= 0) {
    if (lanes_.SpendSlow(lane) && Assign(Role::kLane, lane)) continue;  // the claim is that thread's now
    lane_.store(lane, std::memory_order_relaxed);
    if (!RunLane(lane, turn)) return false;
  }
  FlushAll();
  uint64_t expected = turn;
  return turn_.compare_exchange_strong(expected, turn + 1);
}

bool Crew::RunLane(int lane, uint64_t turn) {
  bool leads = turn != 0;
  CallRef ref;
  while (lanes_.Next(lane, &ref)) {
    run_(ref);
    ref = {};
    if (!leads) continue;
    calls_run_.fetch_add(1, std::memory_order_relaxed);
    if (turn_.load(std::memory_order_relaxed) != turn) {
      leads = false;
      FlushAll();
    }
  }
  return leads;
}

bool Crew::Watch() {
  uint64_t last_turn = 0, last_calls = 0;
  int quiet = 0;
  while (true) {
    {
      std::unique_lock lock(mu_);
      if (quiet > kQuietTicks) {
        watching_ = false;
        changed_.wait(lock, [&] { return watching_.load() || stopping_; });
        quiet = 0;
      } else {
        changed_.wait_for(lock, kWatchEvery, [&] { return stopping_; });
      }
      if (stopping_) return false;
    }
    const uint64_t turn = turn_.load(std::memory_order_acquire);
    const uint64_t calls = calls_run_.load(std::memory_order_relaxed);
    if (turn % 2 == 1 && turn == last_turn) {
      if (calls == last_calls) lanes_.MarkSlow(lane_.load(std::memory_order_relaxed));
      uint64_t expected = turn;
      if (turn_.compare_exchange_strong(expected, turn + 1)) {
        Assign(Role::kWatch, 0);
        FlushAll();
        return true;
      }
    }
    quiet = turn == last_turn ? quiet + 1 : 0;
    last_turn = turn;
    last_calls = calls;
  }
}

}  // namespace manta::call
