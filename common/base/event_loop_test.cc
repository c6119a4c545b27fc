#include "common/base/event_loop.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <functional>
#include <map>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "common/base/random.h"
#include "gtest/gtest.h"

namespace manta {
namespace {

TEST(EventLoop, RunsPostedClosuresInOrderFromAnyThread) {
  EventLoop loop;
  std::vector<int> seen;
  std::thread other([&] {
    for (int i = 0; i < 100; ++i) loop.Post([&seen, i] { seen.push_back(i); });
    loop.Post([&] { loop.Stop(); });
  });
  loop.Run();
  other.join();
  ASSERT_EQ(seen.size(), 100u);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(seen[i], i);
}

TEST(EventLoop, SimulatedTimeJumpsToTheNextTimer) {
  auto loop = EventLoop::Simulated();
  const absl::Time start = loop->Now();
  std::vector<int> order;
  loop->RunAfter(absl::Hours(2), [&] { order.push_back(2); });
  loop->RunAfter(absl::Hours(1), [&] {
    order.push_back(1);
    loop->RunAfter(absl::Minutes(30), [&] { order.push_back(15); });
  });
  const auto cancelled = loop->RunAfter(absl::Minutes(1), [&] { order.push_back(-1); });
  loop->Cancel(cancelled);
  loop->Run();
  EXPECT_EQ(order, (std::vector<int>{1, 15, 2}));
  EXPECT_EQ(loop->Now() - start, absl::Hours(2));
}

// Against a model: timers run by time, those of one time in the order of their creation, cancelled ones never, and a
// number that is over cancels nobody, whatever has its slot by then.
TEST(EventLoop, TimersAreAsAModelHasThem) {
  auto loop = EventLoop::Simulated();
  RandomStream random(20, 1);
  std::map<std::pair<absl::Time, int>, EventLoop::TimerId> waiting;  // (when, creation)
  std::vector<EventLoop::TimerId> over;
  const auto alive = std::make_shared<int>(0);  // one more owner a closure
  int created = 0, ran = 0;
  const std::function<void()> step = [&] {
    for (uint64_t add = random.NextBelow(4); add > 0 && created < 20000; --add) {
      const absl::Duration delay = absl::Microseconds(random.NextBelow(random.NextBelow(3) == 0 ? 5 : 100000));
      const std::pair key(loop->Now() + delay, created++);
      waiting[key] = loop->RunAfter(delay, [&, key, alive] {
        ASSERT_EQ(waiting.begin()->first, key);
        ASSERT_EQ(loop->Now(), key.first);
        over.push_back(waiting.begin()->second);
        waiting.erase(waiting.begin());
        ++ran;
        step();
      });
    }
    for (uint64_t cancel = random.NextBelow(3); cancel > 0 && waiting.size() > 100; --cancel) {
      auto which = waiting.begin();
      std::advance(which, random.NextBelow(waiting.size()));
      loop->Cancel(which->second);
      over.push_back(which->second);
      waiting.erase(which);
    }
    if (!over.empty()) loop->Cancel(over[random.NextBelow(over.size())]);
    ASSERT_EQ(alive.use_count(), 1 + static_cast<long>(waiting.size()) + (loop->OnOwnThread() ? 1 : 0));
  };
  for (int i = 0; i < 200; ++i) step();
  loop->Run();
  EXPECT_TRUE(waiting.empty());
  EXPECT_GT(ran, 5000);
  EXPECT_EQ(alive.use_count(), 1);
}

TEST(EventLoop, CancelledTimersTakeNoRoom) {
  auto loop = EventLoop::Simulated();
  const auto held = std::make_shared<int>(0);
  int ran = 0;
  loop->RunAfter(absl::Hours(2), [&] { ++ran; });
  for (int i = 0; i < 100000; ++i) {
    const auto id = loop->RunAfter(absl::Hours(1), [held] { FAIL(); });
    ASSERT_EQ(held.use_count(), 2);
    loop->Cancel(id);
    ASSERT_EQ(held.use_count(), 1);
  }
  loop->Run();
  EXPECT_EQ(ran, 1);
}

TEST(EventLoop, TimersThatGoWithTheLoopMayCancelOthers) {
  auto loop = EventLoop::Simulated();
  struct Canceller {
    EventLoop* loop;
    EventLoop::TimerId other;
    ~Canceller() { loop->Cancel(other); }
  };
  const auto other = loop->RunAfter(absl::Hours(1), [] { FAIL(); });
  loop->RunAfter(absl::Hours(1), [held = std::shared_ptr<Canceller>(new Canceller{loop.get(), other})] { FAIL(); });
  loop.reset();
}

TEST(EventLoop, SimulatedRunForStopsAtItsEnd) {
  auto loop = EventLoop::Simulated();
  int ticks = 0;
  std::function<void()> tick = [&] {
    ++ticks;
    loop->RunAfter(absl::Seconds(1), [&] { tick(); });
  };
  tick();
  loop->RunFor(absl::Seconds(10));
  EXPECT_EQ(ticks, 11);
}

TEST(EventLoop, RealTimersAreNotEarly) {
  EventLoop loop;
  const absl::Time start = loop.Now();
  loop.RunAfter(absl::Milliseconds(20), [&] { loop.Stop(); });
  loop.Run();
  EXPECT_GE(loop.Now() - start, absl::Milliseconds(20));
  EXPECT_LT(loop.Now() - start, absl::Seconds(2));
}

TEST(EventLoop, WatchesDescriptors) {
  EventLoop loop;
  const int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  int calls = 0;
  loop.WatchReadable(fd, [&] {
    ++calls;
    loop.Unwatch(fd);
    loop.Stop();
  });
  std::thread writer([&] {
    const uint64_t one = 1;
    ASSERT_EQ(write(fd, &one, sizeof(one)), 8);
  });
  loop.Run();
  writer.join();
  close(fd);
  EXPECT_EQ(calls, 1);
}

TEST(EventLoop, AClosureAfterStopStaysQueued) {
  EventLoop loop;
  std::vector<int> seen;
  loop.Post([&] {
    seen.push_back(1);
    loop.Stop();
  });
  loop.Post([&] {
    seen.push_back(2);
    loop.Stop();
  });
  loop.Run();
  EXPECT_EQ(seen, (std::vector<int>{1}));
  loop.Run();
  EXPECT_EQ(seen, (std::vector<int>{1, 2}));
}

TEST(EventLoop, APosterOutlivesItsLoop) {
  auto loop = std::make_unique<EventLoop>();
  const EventLoop::Poster poster = loop->poster();
  auto held = std::make_shared<int>(1);
  EXPECT_TRUE(poster.Post([held] {}));
  EXPECT_EQ(held.use_count(), 2);
  loop.reset();
  EXPECT_EQ(held.use_count(), 1);  // dropped unrun
  EXPECT_FALSE(poster.Post([] { FAIL(); }));
}

}  // namespace
}  // namespace manta
