#include "common/base/event_loop.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <iterator>
#include <mutex>
#include <utility>

#include "common/base/check.h"

namespace manta {
namespace {

constexpr int kSlotBits = 24;  // of a timer's number: its slot; above them the slot's generation
constexpr uint32_t kNoSlot = (uint32_t{1} << kSlotBits) - 1;
constexpr size_t kFewCancelled = 64;

}  // namespace

struct EventLoop::Poster::Queue {
  std::mutex mu;
  std::vector<Closure> closures;
  bool closed = false;
  bool stop = false;
  // Something above is set: the loop looks here before it takes the lock.
  std::atomic<bool> any{false};
  int wake_fd = -1;  // -1: a simulated loop's, which never sleeps

  void Wake() {
    any.store(true, std::memory_order_release);
    if (wake_fd < 0) return;
    const uint64_t one = 1;
    // A full counter (EAGAIN) wakes the loop just as well.
    [[maybe_unused]] const ssize_t n = write(wake_fd, &one, sizeof(one));
  }
};

bool EventLoop::Poster::Post(Closure closure) const {
  std::lock_guard lock(queue_->mu);
  if (queue_->closed) return false;
  const bool was_empty = queue_->closures.empty();
  queue_->closures.push_back(std::move(closure));
  if (was_empty) queue_->Wake();
  return true;
}

EventLoop::EventLoop(bool simulated)
    : simulated_(simulated), poster_(std::make_shared<Poster::Queue>()), free_slot_(kNoSlot) {
  epoll_fd_ = epoll_create1(EPOLL_CLOEXEC);
  MANTA_CHECK(epoll_fd_ >= 0) << "no descriptor for an event loop: errno " << errno;
  if (simulated) return;
  poster_.queue_->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  MANTA_CHECK(poster_.queue_->wake_fd >= 0) << "no descriptor for an event loop: errno " << errno;
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = poster_.queue_->wake_fd;
  MANTA_CHECK(epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, event.data.fd, &event) == 0) << errno;
}

EventLoop::~EventLoop() {
  std::vector<Closure> dropped;
  {
    std::lock_guard lock(poster_.queue_->mu);
    poster_.queue_->closed = true;
    dropped.swap(poster_.queue_->closures);
    if (poster_.queue_->wake_fd >= 0) close(poster_.queue_->wake_fd);
  }
  close(epoll_fd_);
  heap_.clear();
  free_slot_ = kNoSlot;
  const std::vector<Slot> timers = std::exchange(slots_, {});  // what goes with them may still cancel others
}

absl::Time EventLoop::Now() const {
  if (simulated_) return simulated_now_;
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return absl::TimeFromTimespec(now);
}

EventLoop::TimerId EventLoop::RunAfter(absl::Duration delay, Closure closure) {
  uint32_t index = free_slot_;
  if (index == kNoSlot) {
    index = static_cast<uint32_t>(slots_.size());
    MANTA_CHECK(index < kNoSlot) << "an event loop has " << index << " timers";
    slots_.emplace_back();
  } else {
    free_slot_ = slots_[index].next_free;
  }
  Slot& slot = slots_[index];
  slot.closure = std::move(closure);
  slot.order = next_order_++;
  ++slot.generation;
  heap_.push_back({.at = Now() + std::max(delay, absl::ZeroDuration()), .slot = index, .order = slot.order});
  std::push_heap(heap_.begin(), heap_.end());
  return slot.generation << kSlotBits | index;
}

// The slot is free from here on.
EventLoop::Closure EventLoop::Take(uint32_t index) {
  Slot& slot = slots_[index];
  slot.order = 0;
  slot.next_free = std::exchange(free_slot_, index);
  return std::exchange(slot.closure, nullptr);
}

void EventLoop::Cancel(TimerId id) {
  const uint64_t index = id & kNoSlot;
  if (index >= slots_.size() || slots_[index].order == 0 || slots_[index].generation != id >> kSlotBits) return;
  const Closure dropped = Take(static_cast<uint32_t>(index));  // whose end may set and cancel timers
  if (++num_cancelled_ <= kFewCancelled || num_cancelled_ * 2 <= heap_.size()) return;
  std::erase_if(heap_, [this](const Due& due) { return !Waits(due); });
  std::make_heap(heap_.begin(), heap_.end());
  num_cancelled_ = 0;
}

absl::Time EventLoop::NextTimer() {
  while (!heap_.empty() && !Waits(heap_.front())) {
    std::pop_heap(heap_.begin(), heap_.end());
    heap_.pop_back();
    --num_cancelled_;
  }
  return heap_.empty() ? absl::InfiniteFuture() : heap_.front().at;
}

void EventLoop::WatchReadable(int fd, std::function<void()> on_ready) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = fd;
  MANTA_CHECK(watches_.emplace(fd, std::make_shared<std::function<void()>>(std::move(on_ready))).second)
      << "descriptor " << fd << " is watched already";
  MANTA_CHECK(epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, fd, &event) == 0) << "descriptor " << fd << ", errno " << errno;
}

void EventLoop::Unwatch(int fd) {
  if (watches_.erase(fd) > 0) epoll_ctl(epoll_fd_, EPOLL_CTL_DEL, fd, nullptr);
}

void EventLoop::Stop() {
  std::lock_guard lock(poster_.queue_->mu);
  poster_.queue_->stop = true;
  poster_.queue_->Wake();
}

void EventLoop::Run() {
  RunUntil(absl::InfiniteFuture());
}
void EventLoop::RunFor(absl::Duration duration) {
  RunUntil(Now() + duration);
}

void EventLoop::RunUntil(absl::Time end) {
  Poster::Queue& queue = *poster_.queue_;
  owner_ = std::this_thread::get_id();
  while (true) {
    if (queue.any.load(std::memory_order_acquire)) {
      std::lock_guard lock(queue.mu);
      if (std::exchange(queue.stop, false)) {
        queue.any.store(!queue.closures.empty(), std::memory_order_relaxed);
        break;
      }
    }
    const bool ran = RunPosted() | RunDueTimers();
    if (Now() >= end) break;
    if (simulated_) {
      if (ran || queue.any.load(std::memory_order_acquire)) continue;
      const absl::Time next = NextTimer();
      if (next == absl::InfiniteFuture() && end == absl::InfiniteFuture()) break;
      simulated_now_ = std::max(simulated_now_, std::min(next, end));
    } else {
      Wait(ran ? Now() : std::min(NextTimer(), end));
    }
  }
  owner_ = std::thread::id();
}

bool EventLoop::RunPosted() {
  Poster::Queue& queue = *poster_.queue_;
  if (!queue.any.load(std::memory_order_acquire)) return false;
  std::vector<Closure> batch = std::move(spare_);
  {
    std::lock_guard lock(queue.mu);
    batch.swap(queue.closures);
    queue.any.store(queue.stop, std::memory_order_relaxed);
  }
  const bool any = !batch.empty();
  for (size_t i = 0; i < batch.size(); ++i) {
    std::exchange(batch[i], nullptr)();
    if (!queue.any.load(std::memory_order_acquire)) continue;
    std::lock_guard lock(queue.mu);
    if (queue.stop) {  // what is left stays queued, in order
      queue.closures.insert(queue.closures.begin(), std::make_move_iterator(batch.begin() + i + 1),
                            std::make_move_iterator(batch.end()));
      break;
    }
  }
  batch.clear();
  spare_ = std::move(batch);
  return any;
}

bool EventLoop::RunDueTimers() {
  const absl::Time now = Now();
  const uint64_t newest = next_order_;  // timers set by these closures wait for the next round
  bool any = false;
  while (NextTimer() <= now && heap_.front().order < newest) {
    const uint32_t slot = heap_.front().slot;
    std::pop_heap(heap_.begin(), heap_.end());
    heap_.pop_back();
    Take(slot)();
    any = true;
  }
  return any;
}

void EventLoop::Wait(absl::Time until) {
  int timeout_ms = -1;
  if (until != absl::InfiniteFuture()) {
    // Rounded up, so that the loop does not spin through a timer's last millisecond; bounded for the conversion's sake.
    const absl::Duration left = std::clamp(until - Now(), absl::ZeroDuration(), absl::Minutes(1));
    timeout_ms = static_cast<int>(absl::ToInt64Milliseconds(absl::Ceil(left, absl::Milliseconds(1))));
  }
  epoll_event events[32];
  const int n = epoll_wait(epoll_fd_, events, 32, timeout_ms);
  for (int i = 0; i < n; ++i) {
    if (events[i].data.fd == poster_.queue_->wake_fd) {
      uint64_t count;
      [[maybe_unused]] const ssize_t ignored = read(poster_.queue_->wake_fd, &count, sizeof(count));
      continue;
    }
    const auto watch = watches_.find(events[i].data.fd);
    if (watch == watches_.end()) continue;
    const auto on_ready = watch->second;  // the callback may unwatch itself
    (*on_ready)();
  }
}

}  // namespace manta
