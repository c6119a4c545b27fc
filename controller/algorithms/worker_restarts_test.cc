#include "controller/algorithms/worker_restarts.h"

#include "gtest/gtest.h"

namespace manta::controller {
namespace {

TEST(WorkerRestartsTest, NoneByDefault) {
  WorkerRestarts restarts(0, 1);
  EXPECT_FALSE(restarts.Take(0));
  EXPECT_FALSE(restarts.Take(7));
}

TEST(WorkerRestartsTest, SoManyAtOnePlaceAndAnewAfterIt) {
  WorkerRestarts restarts(2, 1);
  EXPECT_TRUE(restarts.Take(0));
  EXPECT_TRUE(restarts.Take(4));  // a checkpoint was made meanwhile
  EXPECT_EQ(restarts.count(), 1);
  EXPECT_TRUE(restarts.Take(4));
  EXPECT_EQ(restarts.count(), 2);
  EXPECT_FALSE(restarts.Take(4));
  EXPECT_TRUE(restarts.Take(8));
  EXPECT_EQ(restarts.count(), 1);
}

// The trainer that went on after step 6 dies itself: back to the checkpoint of step 4, which is no progress.
TEST(WorkerRestartsTest, GoingBackIsNoProgress) {
  WorkerRestarts restarts(2, 1);
  EXPECT_TRUE(restarts.Take(6));
  EXPECT_TRUE(restarts.Take(4));
  EXPECT_FALSE(restarts.Take(4));
  EXPECT_FALSE(restarts.Take(6));
  EXPECT_TRUE(restarts.Take(7));
}

TEST(WorkerRestartsTest, WaitsTwiceAsLongEachTimeUpToAMinute) {
  WorkerRestarts restarts(1000, 1);
  absl::Duration expected = absl::Seconds(1);
  for (int i = 0; i < 40; ++i) {
    ASSERT_TRUE(restarts.Take(0));
    const absl::Duration wait = restarts.Backoff();
    EXPECT_GE(wait, expected * 0.75);
    EXPECT_LE(wait, expected * 1.25);
    expected = std::min(expected * 2, absl::Minutes(1));
  }
}

}  // namespace
}  // namespace manta::controller
