#include "common/base/task.h"

#include <memory>
#include <string>

#include "gtest/gtest.h"

namespace manta {
namespace {

Task<absl::StatusOr<int>> Half(EventLoop& loop, int value) {
  MANTA_CO_RETURN_IF_ERROR(co_await Sleep(loop, absl::Seconds(value)));
  if (value % 2 != 0) co_return absl::InvalidArgumentError("odd");
  co_return value / 2;
}

Task<absl::StatusOr<int>> Quarter(EventLoop& loop, int value) {
  MANTA_CO_ASSIGN_OR_RETURN(const int half, co_await Half(loop, value));
  MANTA_CO_ASSIGN_OR_RETURN(const int quarter, co_await Half(loop, half));
  co_return quarter;
}

TEST(Task, AwaitsAndPropagatesErrors) {
  auto loop = EventLoop::Simulated();
  EXPECT_EQ(RunToCompletion(*loop, Quarter(*loop, 8)).value(), 2);
  EXPECT_EQ(RunToCompletion(*loop, Quarter(*loop, 6)).status().message(), "odd");
}

TEST(Task, WhenAllRunsTogetherAndKeepsOrder) {
  auto loop = EventLoop::Simulated();
  const absl::Time start = loop->Now();
  std::vector<Task<absl::StatusOr<int>>> tasks;
  for (int i = 9; i >= 0; --i) tasks.push_back(Half(*loop, 2 * i));
  const auto results = RunToCompletion(*loop, WhenAll(std::move(tasks)));
  ASSERT_EQ(results.size(), 10u);
  for (int i = 0; i < 10; ++i) EXPECT_EQ(results[i].value(), 9 - i);
  EXPECT_EQ(loop->Now() - start, absl::Seconds(18));
  EXPECT_TRUE(RunToCompletion(*loop, WhenAll(std::vector<Task<absl::StatusOr<int>>>{})).empty());
}

Task<int> CountRunning(EventLoop& loop, int* running, int* most) {
  *most = std::max(*most, ++*running);
  (void)co_await Sleep(loop, absl::Seconds(1));
  --*running;
  co_return 1;
}

TEST(Task, WhenAllBoundedKeepsItsLimit) {
  auto loop = EventLoop::Simulated();
  int running = 0, most = 0;
  std::vector<Task<int>> tasks;
  for (int i = 0; i < 20; ++i) tasks.push_back(CountRunning(*loop, &running, &most));
  EXPECT_EQ(RunToCompletion(*loop, WhenAllBounded(*loop, std::move(tasks), 3)).size(), 20u);
  EXPECT_EQ(most, 3);
}

TEST(Task, CancelEndsASleepAtOnce) {
  auto loop = EventLoop::Simulated();
  CancelSource source;
  const absl::Time start = loop->Now();
  loop->RunAfter(absl::Seconds(2), [&] { source.Cancel(absl::AbortedError("enough")); });
  const absl::Status status = RunToCompletion(*loop, Sleep(*loop, absl::Hours(1), source.token()));
  EXPECT_EQ(status.message(), "enough");
  EXPECT_EQ(loop->Now() - start, absl::Seconds(2));
  EXPECT_EQ(RunToCompletion(*loop, Sleep(*loop, absl::Hours(1), source.token())).message(), "enough");
}

Task<std::string> Deep(EventLoop& loop, int depth, std::string text) {
  if (depth == 0) co_return text;
  co_return co_await Deep(loop, depth - 1, text + "x");
}

TEST(Task, ParametersLiveInTheCoroutine) {
  auto loop = EventLoop::Simulated();
  EXPECT_EQ(RunToCompletion(*loop, Deep(*loop, 100, std::string("start"))).size(), 105u);
}

Task<std::unique_ptr<int>> MoveOnly() {
  co_return std::make_unique<int>(3);
}

TEST(Task, CarriesMoveOnlyValues) {
  auto loop = EventLoop::Simulated();
  EXPECT_EQ(*RunToCompletion(*loop, MoveOnly()), 3);
}

TEST(Task, AnUnstartedTaskFreesItsParameters) {
  auto loop = EventLoop::Simulated();
  auto held = std::make_shared<int>(1);
  {
    auto task = [](std::shared_ptr<int> p) -> Task<int> { co_return *p; }(held);
  }
  EXPECT_EQ(held.use_count(), 1);
}

TEST(OneShot, WakesAllWaitersAndKeepsTheFirstValue) {
  auto loop = EventLoop::Simulated();
  OneShot<int> value(*loop);
  auto wait = [](OneShot<int> v) -> Task<int> { co_return co_await v.Wait(); };
  loop->RunAfter(absl::Seconds(1), [&] {
    EXPECT_TRUE(value.Set(5));
    EXPECT_FALSE(value.Set(6));
  });
  std::vector<Task<int>> tasks;
  for (int i = 0; i < 3; ++i) tasks.push_back(wait(value));
  EXPECT_EQ(RunToCompletion(*loop, WhenAll(std::move(tasks))), (std::vector<int>{5, 5, 5}));
}

}  // namespace
}  // namespace manta
