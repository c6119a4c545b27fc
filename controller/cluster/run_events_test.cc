#include "controller/cluster/run_events.h"

#include "common/base/status.h"
#include "gtest/gtest.h"

namespace manta::controller {
namespace {

TEST(RunEvents, KeepsABoundedHistory) {
  RunEvents events(/*capacity=*/5);
  int calls = 0;
  const uint64_t listener = events.AddListener([&] { ++calls; });
  for (int i = 1; i <= 8; ++i) events.Step(i, 8, 1.5, {{"loss", 0.5 * i}});
  EXPECT_EQ(calls, 8);
  const auto all = events.After(0, 100);
  ASSERT_EQ(all.size(), 5u);
  EXPECT_EQ(all[0].sequence(), 4u);
  EXPECT_EQ(all[0].step().metrics().at("loss"), 2.0);
  EXPECT_EQ(events.After(6, 1).at(0).sequence(), 7u);
  EXPECT_TRUE(events.After(8, 100).empty());
  EXPECT_EQ(events.step(), 8);
  events.RemoveListener(listener);
  events.Ended(UserError("bad"), "", "");
  EXPECT_EQ(calls, 8);
  events.Text("too late");
  ASSERT_EQ(events.After(8, 100).size(), 1u);
  EXPECT_EQ(FromProto(events.After(8, 100)[0].ended().status()).message(), "bad");
  EXPECT_TRUE(events.ended());
}

}  // namespace
}  // namespace manta::controller
