#include "common/base/signals.h"

#include <signal.h>
#include <unistd.h>

#include <vector>

#include "gtest/gtest.h"

namespace manta {
namespace {

TEST(Signals, AreEventsOfTheLoop) {
  BlockSignals({SIGUSR1, SIGUSR2});
  EventLoop loop;
  std::vector<int> seen;
  {
    SignalWatch watch(loop, {SIGUSR1, SIGUSR2}, [&](int signal) {
      seen.push_back(signal);
      if (seen.size() == 2) loop.Stop();
    });
    kill(getpid(), SIGUSR2);
    kill(getpid(), SIGUSR1);
    loop.RunFor(absl::Seconds(10));
  }
  EXPECT_EQ(seen, (std::vector<int>{SIGUSR1, SIGUSR2}));  // the kernel's order: by number
  // What comes when nobody watches waits.
  kill(getpid(), SIGUSR1);
  SignalWatch again(loop, {SIGUSR1}, [&](int) { loop.Stop(); });
  loop.RunFor(absl::Seconds(10));
}

}  // namespace
}  // namespace manta
