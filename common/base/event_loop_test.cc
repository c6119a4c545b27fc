#include "common/base/event_loop.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <thread>
#include <vector>

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
