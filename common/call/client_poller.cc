#include "common/call/client_poller.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>

namespace manta::call {
namespace {

using SteadyClock = std::chrono::steady_clock;
constexpr auto kBusyTick = std::chrono::milliseconds(5);
constexpr auto kIdleTick = std::chrono::milliseconds(500);
constexpr auto kStandBy = std::chrono::milliseconds(2);

}  // namespace

void ClientPoller::Waiter::Notify() {
  std::lock_guard lock(mu_);
  done_.store(true, std::memory_order_release);
  changed_.notify_all();
}

ClientPoller::ClientPoller(std::function<void()> tick, std::function<bool()> busy)
    : tick_(std::move(tick)), busy_(std::move(busy)), background_([this] { Background(); }) {
  pthread_setname_np(background_.native_handle(), "call-client");
}

ClientPoller::~ClientPoller() {
  Shutdown();
}

void ClientPoller::Shutdown() {
  {
    std::lock_guard lock(mu_);
    if (shut_down_) return;
    stopping_ = shut_down_ = true;
    changed_.notify_all();
  }
  Kick();
  background_.join();
  alarm_.Cancel();
  queue_.Shutdown();
  void* tag = nullptr;
  bool ok = false;
  while (queue_.Next(&tag, &ok)) static_cast<Tag*>(tag)->Run(false);
}

bool ClientPoller::PollOnce() {
  const bool busy = busy_();
  const auto now = SteadyClock::now();
  if (now >= next_tick_) {
    next_tick_ = now + (busy ? kBusyTick : kIdleTick);
    tick_();
  }
  void* tag = nullptr;
  bool ok = false;
  const gpr_timespec until = gpr_time_add(
      gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_millis(busy ? kBusyTick.count() : kIdleTick.count(), GPR_TIMESPAN));
  const auto status = queue_.AsyncNext(&tag, &ok, until);
  if (status == grpc::CompletionQueue::GOT_EVENT) static_cast<Tag*>(tag)->Run(ok);
  if (busy != busy_()) next_tick_ = std::min(next_tick_, SteadyClock::now() + kBusyTick);
  return status != grpc::CompletionQueue::SHUTDOWN;
}

void ClientPoller::Kick() {
  if (!background_polls_.load() || kicked_.exchange(true)) return;
  alarm_.Set(&queue_, gpr_now(GPR_CLOCK_MONOTONIC), &kick_);
}

void ClientPoller::PassOn() {
  std::lock_guard lock(mu_);
  if (sleeping_.empty()) return;
  Waiter* waiter = sleeping_.back();
  std::lock_guard waiter_lock(waiter->mu_);
  waiter->lead_ = true;
  waiter->changed_.notify_all();
}

void ClientPoller::Wait(Waiter& waiter) {
  waiting_.fetch_add(1);
  waits_.fetch_add(1, std::memory_order_relaxed);
  while (!waiter.done()) {
    if (polling_.try_lock()) {
      while (!waiter.done() && PollOnce()) {
      }
      polling_.unlock();
      break;
    }
    Kick();
    {
      std::lock_guard lock(mu_);
      sleeping_.push_back(&waiter);
    }
    {
      std::unique_lock lock(waiter.mu_);
      waiter.changed_.wait_for(lock, kBusyTick, [&] { return waiter.done() || waiter.lead_; });
      waiter.lead_ = false;
    }
    std::lock_guard lock(mu_);
    std::erase(sleeping_, &waiter);
  }
  if (waiting_.fetch_sub(1) > 1) PassOn();
  std::lock_guard lock(waiter.mu_);  // Notify has left it
}

void ClientPoller::Background() {
  uint64_t seen = 0;
  while (true) {
    {
      std::unique_lock lock(mu_);
      if (stopping_) return;
      const uint64_t waits = waits_.load(std::memory_order_relaxed);
      if (waiting_.load() > 0 || waits != seen) {
        seen = waits;
        changed_.wait_for(lock, kStandBy, [&] { return stopping_; });
        continue;
      }
    }
    {
      std::lock_guard polls(polling_);
      background_polls_.store(true);
      bool stop;
      {
        std::lock_guard lock(mu_);
        stop = stopping_;
      }
      if (waiting_.load() == 0 && !stop) PollOnce();
      background_polls_.store(false);
    }
    if (waiting_.load() > 0) PassOn();
  }
}

}  // namespace manta::call
