#include "controller/cli/restarts.h"

#include "gtest/gtest.h"

namespace manta::cli {
namespace {

TEST(RestartsTest, SoManyWithinAMinuteAndEachLater) {
  const absl::Time start = absl::UnixEpoch() + absl::Hours(1);
  Restarts restarts(3);
  EXPECT_TRUE(restarts.Take(start));
  EXPECT_EQ(restarts.Backoff(), absl::ZeroDuration());
  EXPECT_TRUE(restarts.Take(start + absl::Seconds(1)));
  EXPECT_EQ(restarts.Backoff(), absl::Milliseconds(100));
  EXPECT_TRUE(restarts.Take(start + absl::Seconds(2)));
  EXPECT_EQ(restarts.Backoff(), absl::Milliseconds(200));
  EXPECT_FALSE(restarts.Take(start + absl::Seconds(3)));
  EXPECT_EQ(restarts.count(), 3);
  EXPECT_TRUE(restarts.Take(start + absl::Seconds(61)));
  EXPECT_EQ(restarts.count(), 3);
}

TEST(RestartsTest, NoneMeansNone) {
  Restarts restarts(0);
  EXPECT_FALSE(restarts.Take(absl::UnixEpoch()));
}

TEST(RestartsTest, TheWaitHasABound) {
  Restarts restarts(1000);
  for (int i = 0; i < 500; ++i) EXPECT_TRUE(restarts.Take(absl::UnixEpoch()));
  EXPECT_EQ(restarts.Backoff(), absl::Seconds(2));
}

}  // namespace
}  // namespace manta::cli
