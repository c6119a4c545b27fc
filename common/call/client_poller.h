// ClientPoller: the completion queue of a caller, and who waits on it. A thread that waits for its call's reply polls
// the queue itself, serving everybody's events meanwhile, since being woken by another thread would cost more than the
// call; other waiting threads sleep and inherit the queue. While nobody waits, a background thread polls. It is out of
// the way while calls are waited for one after the other, and back two milliseconds after the last.
//
// Thread-safe. Tags (tag.h) run on whichever thread polls, without locks held; they must not wait.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "common/call/tag.h"
#include "grpcpp/alarm.h"
#include "grpcpp/completion_queue.h"

namespace manta::call {

class ClientPoller {
 public:
  // What one thread waits for, once.
  class Waiter {
   public:
    void Notify();  // done; the waiter may be gone when this returns
    bool done() const { return done_.load(std::memory_order_acquire); }

   private:
    friend class ClientPoller;
    std::atomic<bool> done_{false};
    std::mutex mu_;
    std::condition_variable changed_;
    bool lead_ = false;  // the queue is free: take it
  };

  // `tick` is called every few milliseconds while `busy` says that calls are under way, else twice a second.
  ClientPoller(std::function<void()> tick, std::function<bool()> busy);
  ~ClientPoller();  // Shutdown

  grpc::CompletionQueue* queue() { return &queue_; }
  // Polls, or sleeps while another thread does, until Notify. The calls' deadlines see to it that it comes.
  void Wait(Waiter& waiter);
  // Ends the background thread and runs what tags are left; no operation may be begun after it.
  void Shutdown();

 private:
  class KickTag final : public Tag {
   public:
    explicit KickTag(ClientPoller* poller) : poller_(poller) {}
    void Run(bool) override { poller_->kicked_ = false; }

   private:
    ClientPoller* const poller_;
  };
  void Background();
  bool PollOnce();
  void Kick();
  void PassOn();

  const std::function<void()> tick_;
  const std::function<bool()> busy_;
  grpc::CompletionQueue queue_;
  std::mutex polling_;  // held by the thread that polls
  std::atomic<int> waiting_{0};
  std::atomic<uint64_t> waits_{0};
  std::atomic<bool> background_polls_{false}, kicked_{false};
  grpc::Alarm alarm_;
  KickTag kick_{this};
  std::mutex mu_;
  std::condition_variable changed_;
  std::vector<Waiter*> sleeping_;
  bool stopping_ = false, shut_down_ = false;
  std::chrono::steady_clock::time_point next_tick_{};  // the polling thread's
  std::thread background_;
};

}  // namespace manta::call
