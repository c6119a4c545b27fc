#include "common/actor/lane.h"

#include <atomic>
#include <future>

#include "common/base/status.h"
#include "gtest/gtest.h"

namespace manta::actor {
namespace {

TEST(Lane, RunsInOrderAndCounts) {
  std::vector<int> seen;
  {
    Lane lane("work", 1, 100);
    for (int i = 0; i < 100; ++i) ASSERT_TRUE(lane.Post([&seen, i] { seen.push_back(i); }).ok());
  }
  ASSERT_EQ(seen.size(), 100u);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(seen[i], i);
}

TEST(Lane, AFullQueueSaysSoAndThatNothingStarted) {
  std::promise<void> gate, began;  // outlive the lane's thread
  Lane lane("train", 1, 2);
  ASSERT_TRUE(lane.Post([&] {
                    began.set_value();
                    gate.get_future().wait();
                  })
                  .ok());
  began.get_future().wait();
  EXPECT_TRUE(lane.Post([] {}).ok());
  EXPECT_TRUE(lane.Post([] {}).ok());
  const absl::Status full = lane.Post([] {});
  EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(GetErrorInfo(full).outcome(), v1::CALL_OUTCOME_NOT_STARTED);
  EXPECT_EQ(GetErrorInfo(full).origin(), v1::ORIGIN_OVERLOADED);
  EXPECT_EQ(lane.queued(), 3u);
  lane.Close();
  EXPECT_EQ(lane.Post([] {}).code(), absl::StatusCode::kUnavailable);
  gate.set_value();
}

TEST(Lane, SeveralThreadsRunAtOnce) {
  std::promise<void> a, b;
  Lane lane("score", 2, 10);
  ASSERT_TRUE(lane.Post([&] {
                    a.set_value();
                    b.get_future().wait();
                  })
                  .ok());
  ASSERT_TRUE(lane.Post([&] {
                    a.get_future().wait();
                    b.set_value();
                  })
                  .ok());
  lane.Close();
}

}  // namespace
}  // namespace manta::actor
