#include "common/base/event_loop.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <utility>

#include "common/base/check.h"

namespace manta {

struct EventLoop::Poster::Queue {
  std::mutex mu;
  std::deque<Closure> closures;
  bool closed = false;
  bool stop = false;
  int wake_fd = -1;

  void Wake() {
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

EventLoop::EventLoop(bool simulated) : simulated_(simulated), poster_(std::make_shared<Poster::Queue>()) {
  poster_.queue_->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  epoll_fd_ = epoll_create1(EPOLL_CLOEXEC);
  MANTA_CHECK(poster_.queue_->wake_fd >= 0 && epoll_fd_ >= 0) << "no descriptor for an event loop: errno " << errno;
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = poster_.queue_->wake_fd;
  MANTA_CHECK(epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, event.data.fd, &event) == 0) << errno;
}

EventLoop::~EventLoop() {
  std::deque<Closure> dropped;
  {
    std::lock_guard lock(poster_.queue_->mu);
    poster_.queue_->closed = true;
    dropped.swap(poster_.queue_->closures);
    close(poster_.queue_->wake_fd);
  }
  close(epoll_fd_);
}

absl::Time EventLoop::Now() const {
  if (simulated_) return simulated_now_;
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return absl::TimeFromTimespec(now);
}

EventLoop::TimerId EventLoop::RunAfter(absl::Duration delay, Closure closure) {
  const TimerId id = next_timer_++;
  const absl::Time at = Now() + std::max(delay, absl::ZeroDuration());
  timers_.emplace(std::make_pair(at, id), std::move(closure));
  timer_times_.emplace(id, at);
  return id;
}

void EventLoop::Cancel(TimerId id) {
  const auto found = timer_times_.find(id);
  if (found == timer_times_.end()) return;
  timers_.erase({found->second, id});
  timer_times_.erase(found);
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
  owner_ = std::this_thread::get_id();
  while (true) {
    {
      std::lock_guard lock(poster_.queue_->mu);
      if (std::exchange(poster_.queue_->stop, false)) break;
    }
    const bool ran = RunPosted() | RunDueTimers();
    if (Now() >= end) break;
    const absl::Time next = timers_.empty() ? absl::InfiniteFuture() : timers_.begin()->first.first;
    if (simulated_) {
      if (ran) continue;
      std::lock_guard lock(poster_.queue_->mu);
      if (!poster_.queue_->closures.empty() || poster_.queue_->stop) continue;
      if (next == absl::InfiniteFuture() && end == absl::InfiniteFuture()) break;
      simulated_now_ = std::max(simulated_now_, std::min(next, end));
    } else {
      Wait(ran ? Now() : std::min(next, end));
    }
  }
  owner_ = std::thread::id();
}

bool EventLoop::RunPosted() {
  std::deque<Closure> batch;
  {
    std::lock_guard lock(poster_.queue_->mu);
    batch.swap(poster_.queue_->closures);
  }
  const bool any = !batch.empty();
  while (!batch.empty()) {
    Closure closure = std::move(batch.front());
    batch.pop_front();
    closure();
    std::lock_guard lock(poster_.queue_->mu);
    if (poster_.queue_->stop) {  // what is left stays queued, in order
      poster_.queue_->closures.insert(poster_.queue_->closures.begin(), std::make_move_iterator(batch.begin()),
                                      std::make_move_iterator(batch.end()));
      break;
    }
  }
  return any;
}

bool EventLoop::RunDueTimers() {
  const absl::Time now = Now();
  const TimerId newest = next_timer_;  // timers set by these closures wait for the next round
  bool any = false;
  while (!timers_.empty()) {
    const auto first = timers_.begin();
    if (first->first.first > now || first->first.second >= newest) break;
    Closure closure = std::move(first->second);
    timer_times_.erase(first->first.second);
    timers_.erase(first);
    closure();
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
